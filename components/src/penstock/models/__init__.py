"""The shape of a model from its `config.json`; used by checks and memory."""

from penstock.models.find import find_model, read_model
from penstock.models.shape import ModelShape, Parts

__all__ = ["ModelShape", "Parts", "find_model", "read_model"]
