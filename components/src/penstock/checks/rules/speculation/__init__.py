"""Rules about speculative decoding."""
