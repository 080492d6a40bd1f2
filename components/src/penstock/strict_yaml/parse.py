"""A YAML file → its typed model, or one GraphError with every problem and its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from penstock.errors import GraphError
from penstock.strict_yaml.document import read_document
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.places import Places
from penstock.strict_yaml.problems import FieldProblem, located

Model = TypeVar("Model", bound=BaseModel)


def parse_strictly(
    text: str,
    source: str,
    kind: DocumentKind,
    model: type[Model],
    problems_of: Callable[[ValidationError], Iterable[FieldProblem]],
) -> Model:
    """The typed file; ``source`` is its name, ``problems_of`` describes the model's errors.

    Raises GraphError.
    """
    document = read_document(text, source, kind)
    problems = list(document.problems)
    try:
        parsed = model.model_validate(document.values)
    except ValidationError as error:
        places = Places(positions=document.positions)
        problems += located(problems_of(error), problems, places, source)
    if problems:
        raise GraphError(*sorted(problems, key=lambda p: (p.line or 0, p.place)))
    return parsed
