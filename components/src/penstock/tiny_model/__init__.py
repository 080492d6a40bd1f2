"""Generate a model small enough for a laptop's CPU: random weights in a real architecture.

Its output is noise, but the same noise on every machine.
"""

from penstock.tiny_model.architectures import ARCHITECTURES
from penstock.tiny_model.gguf_file import write_gguf
from penstock.tiny_model.write import write

__all__ = ["ARCHITECTURES", "write", "write_gguf"]
