"""Checks: what cannot work, or works badly, told before a GPU is touched."""
