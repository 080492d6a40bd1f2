"""Names of things outside of the graph: images and models, each checked by its own grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field

from penstock.graph import image_reference, model_id
from penstock.strict_yaml.base import invalid
from penstock.strict_yaml.problems import shown
from penstock.text.names import visible


def _well_formed(problem_of: Callable[[str], tuple[str, str] | None]) -> AfterValidator:
    def check(text: str) -> str:
        if problem := problem_of(text):
            message, fix = problem
            raise invalid("", f"{shown((), text)} {message}", fix)
        return text

    return AfterValidator(check)


def _served_name_problem(name: str) -> tuple[str, str] | None:
    if name == (plain := visible(name)):
        return None
    fix = f"Write `{plain}`." if plain else "Write a name, or remove the key: then it is the ID."
    if name.strip(" ").isprintable():
        return "begins or ends with a space", fix
    return "contains an invisible character", fix


Image = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"pattern": image_reference.PATTERN}),
    _well_formed(image_reference.image_problem),
]
ServedName = Annotated[str, Field(min_length=1), _well_formed(_served_name_problem)]
ModelId = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"pattern": model_id.PATTERN}),
    _well_formed(model_id.model_id_problem),
]
