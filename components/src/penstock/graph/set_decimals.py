"""Decimals of `--set path=0.8`: numbers where the graph has numbers, as YAML reads them.

Helm's parser of --set knows integers and booleans, and makes a text of every decimal. An engine
rejects a text as its option, and checks would not see the number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue

from penstock.strict_yaml.places import Path, place_of
from penstock.strict_yaml.scalars import read_scalar


def with_decimals(
    values: Mapping[str, Any], sets: Mapping[str, str], model: type[BaseModel]
) -> dict[str, Any]:
    """The values with the decimals of --set as numbers; ``sets`` has the places that it changed."""
    return {key: _read(value, (key,), sets, model) for key, value in values.items()}


def _read(value: Any, path: Path, sets: Mapping[str, str], model: type[BaseModel]) -> Any:
    if isinstance(value, dict):
        return {key: _read(item, (*path, key), sets, model) for key, item in value.items()}
    if isinstance(value, list):
        return [_read(item, (*path, at), sets, model) for at, item in enumerate(value)]
    if not isinstance(value, str) or place_of(path) not in sets:
        return value
    number = read_scalar(value)
    return number if isinstance(number, float) and _takes_decimals(model, path) else value


def _takes_decimals(annotation: Any, path: Path) -> bool:
    """Whether the field at the path below a type takes decimals, and no text."""
    found = set(_leaves(annotation, path))
    return float in found and str not in found


def _leaves(annotation: Any, path: Path) -> Iterator[Any]:
    """The types at a path; none for an unknown key, and float for an option of any type."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is JsonValue:
        yield float
    elif origin is Annotated:
        yield from _leaves(parts[0], path)
    elif origin in (Union, UnionType):
        for part in parts:
            yield from _leaves(part, path)
    elif not path:
        yield annotation
    elif origin in (dict, tuple):
        yield from _leaves(parts[1] if origin is dict else parts[0], path[1:])
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(path[0]))
        if field is not None:
            yield from _leaves(field.annotation, path[1:])
