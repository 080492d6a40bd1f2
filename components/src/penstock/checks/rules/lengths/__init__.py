"""Rules about sequence lengths."""

from penstock.checks.rules.lengths import sequence_lengths, step_budget, token_capacity

MODULES = (
    sequence_lengths,
    step_budget,
    token_capacity,
)
