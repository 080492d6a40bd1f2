"""A model small enough for a laptop's CPU, made here: random weights in a real architecture.

What it writes is noise; that it writes the same noise everywhere is what makes it useful.
"""

from penstock.tiny_model.architectures import ARCHITECTURES
from penstock.tiny_model.write import write

__all__ = ["ARCHITECTURES", "write"]
