"""What a model is made of, from its `config.json`: the facts that checks and memory stand on."""

from penstock.models.find import find_model, read_model
from penstock.models.shape import ModelShape, Parts

__all__ = ["ModelShape", "Parts", "find_model", "read_model"]
