"""Rules about speculative decoding."""

from penstock.checks.rules.speculation import speculative_decoding

MODULES = (speculative_decoding,)
