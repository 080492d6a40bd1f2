"""Rules about sequence lengths."""

from penstock.checks.rules.lengths import sequence_lengths

MODULES = (sequence_lengths,)
