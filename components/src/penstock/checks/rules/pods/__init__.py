"""Rules about pods."""
