"""Valid values that an invalid value of a graph may have been meant to be.

`checks/incomplete.py` checks a graph with several of them: what it finds with each of them does not
depend on the invalid value.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from penstock.graph.model import Graph
from penstock.nearest import KEY_CUTOFF, nearest
from penstock.strict_yaml.places import Path, parent_of
from penstock.strict_yaml.problems import model_at

MOST_CHOICES = 4
_INDEX = re.compile(r"\[(\d+)\]\.?")


@dataclass(frozen=True)
class Remove:
    """Leave the value out: its default applies."""


@dataclass(frozen=True)
class Keep:
    """Use the value as it is."""


@dataclass(frozen=True)
class Rename:
    key: str


@dataclass(frozen=True)
class Set:
    value: Any


Choice = Remove | Keep | Rename | Set


def path_at(values: Any, place: str) -> Path | None:
    """The path of a dotted place in ``values``, whose keys may contain dots; None without one."""
    if not place:
        return ()
    if isinstance(values, list) and (match := _INDEX.match(place)):
        index = int(match[1])
        below = path_at(values[index], place[match.end() :]) if index < len(values) else None
        return None if below is None else (index, *below)
    for key in sorted(values, key=len, reverse=True) if isinstance(values, dict) else ():
        if place == key or place.startswith((f"{key}.", f"{key}[")):
            below = path_at(values[key], place.removeprefix(key).removeprefix("."))
            if below is not None:
                return (key, *below)
    return None


def choices(values: Any, place: str) -> tuple[Choice, ...]:
    """What to put in the place of an invalid value, or of a missing one, at most MOST_CHOICES."""
    path = path_at(values, place)
    is_missing = path is None
    if path is None:
        above = path_at(values, parent_of(place))
        last = place.removeprefix(parent_of(place)).removeprefix(".")
        path = (*above, last) if above is not None else None
    if not path:
        return (Remove(),)
    section = model_at(path[:-1], Graph)
    fields = dict(section.model_fields) if section is not None else {}
    field = fields.get(str(path[-1]))
    if field is not None:
        value = None if is_missing else _at(values, path)
        return tuple(_of_field(field, value))[:MOST_CHOICES]
    if not fields:
        return Remove(), Keep()
    others = _at(values, path[:-1])
    near = nearest(str(path[-1]), [name for name in fields if name not in others], KEY_CUTOFF)
    return (Rename(near), Remove()) if near else (Remove(),)


def apply(values: dict[str, Any], place: str, choice: Choice) -> dict[str, Any]:
    """A copy of the values with the choice made at a place."""
    edited: dict[str, Any] = copy.deepcopy(values)
    path = path_at(edited, place)
    if path is None and isinstance(choice, Set) and (above := path_at(edited, parent_of(place))):
        path = (*above, place.removeprefix(parent_of(place)).removeprefix("."))
    if not path or isinstance(choice, Keep):
        return edited
    parent: Any = _at(edited, path[:-1])
    last = path[-1]
    if isinstance(choice, Set):
        parent[last] = choice.value
    elif isinstance(choice, Rename):
        parent[choice.key] = parent.pop(last)
    elif isinstance(choice, Remove):
        del parent[last]
    return edited


def _at(values: Any, path: Path) -> Any:
    for step in path:
        values = values[step]
    return values


def _of_field(field: FieldInfo, value: Any) -> Iterator[Choice]:
    kinds = list(_kinds(field.annotation))
    if (meant := _converted(value, kinds)) is not None:
        yield Set(meant)
        return
    if not field.is_required():
        yield Remove()
    for kind in kinds:
        yield from (Set(option) for option in _examples(kind))


def _converted(value: Any, kinds: Sequence[Any]) -> Any:
    """The value that was certainly meant: a quoted number or boolean, arguments in one text."""
    if not isinstance(value, str):
        return None
    if int in kinds and re.fullmatch(r"\d{1,9}", value):
        return int(value)
    if bool in kinds and value in ("true", "false"):
        return value == "true"
    if tuple in kinds and value.startswith("-"):
        try:
            return shlex.split(value)
        except ValueError:
            return None
    return None


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types and the literal values of an annotation."""
    origin = get_origin(annotation)
    if origin is Literal:
        yield from get_args(annotation)
    elif origin in (tuple, dict):
        yield origin
    elif origin is not None:
        for part in get_args(annotation):
            yield from _kinds(part)
    else:
        yield annotation


def _examples(kind: Any) -> tuple[Any, ...]:
    """Different values of a type, or the literal value itself."""
    if kind is bool:
        return False, True
    if kind is int:
        return 1, 2, 64
    if kind is float:
        return 0.5, 1.0
    if kind is str:
        return "example-a", "example-b"
    return (kind,) if isinstance(kind, (str, int)) and not isinstance(kind, type) else ()
