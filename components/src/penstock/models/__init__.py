"""The shape of a model from its `config.json`."""

from penstock.models.facts import ModelFacts, find_facts
from penstock.models.find import find_model, folder_of_model, read_model
from penstock.models.shape import ModelShape, Parts

__all__ = [
    "ModelFacts",
    "ModelShape",
    "Parts",
    "find_facts",
    "find_model",
    "folder_of_model",
    "read_model",
]
