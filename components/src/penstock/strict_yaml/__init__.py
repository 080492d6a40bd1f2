"""Strict reading of YAML with positions; used by every input file."""
