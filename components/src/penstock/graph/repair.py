"""Valid values that an invalid value of a graph may have been meant to be.

`checks/incomplete.py` checks a graph with several of them: what it finds with each of them does not
depend on the invalid value.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.graph.foreign import COMPONENTS, POOLS, place_of_key
from penstock.graph.model import Graph
from penstock.strict_yaml.places import Path, parent_of, place_of, value_at
from penstock.strict_yaml.problems import model_at
from penstock.text.names import KEY_CUTOFF, nearest

MOST_CHOICES = 8
# Sections, and keys of the graph, that decide what processes start with.
STARTERS = (*COMPONENTS, "engine", "env", "pod")
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
    current = None if is_missing else value_at(values, path)
    if field is not None:
        return tuple(_of_field(path, field, current))[:MOST_CHOICES]
    if not fields:
        is_scalar = isinstance(current, (bool, int, float))
        return Remove(), Set(json.dumps(current)) if is_scalar else Keep()
    absent = [name for name in fields if name not in value_at(values, path[:-1])]
    meant = nearest(str(path[-1]), absent, KEY_CUTOFF) or _name_here(path)
    return (Rename(meant), Remove()) if meant in absent else (Remove(),)


def _name_here(path: Path) -> str:
    """The key of the same section that a key of another tool stands for, if there is one."""
    section, _, name = place_of_key(path).rpartition(".")
    return name if section == place_of(path[:-1]) else ""


def opaque_owner(values: Any, place: str) -> str | None:
    """The section whose options, variables or arguments an invalid value replaces as a whole, so
    that nothing is known about what it starts; empty for the graph, None for another place."""
    path = path_at(values, place)
    section = model_at(path[:-1], Graph) if path else None
    field = section.model_fields.get(str(path[-1])) if path and section else None
    if not path or field is None or path[0] not in STARTERS:
        return None
    kinds, current = list(_kinds(field.annotation)), value_at(values, path)
    is_replaced = (dict in kinds and not isinstance(current, dict)) or (
        tuple in kinds and not isinstance(current, list)
    )
    if not is_replaced or _meant(kinds, current):
        return None
    return str(path[0]) if len(path) > 1 else ""


def apply(values: dict[str, Any], place: str, choice: Choice) -> dict[str, Any]:
    """A copy of the values with the choice made at a place."""
    edited: dict[str, Any] = copy.deepcopy(values)
    path = path_at(edited, place)
    if path is None and isinstance(choice, Set) and (above := path_at(edited, parent_of(place))):
        path = (*above, place.removeprefix(parent_of(place)).removeprefix("."))
    if not path or isinstance(choice, Keep):
        return edited
    parent: Any = value_at(edited, path[:-1])
    last = path[-1]
    if isinstance(choice, Set):
        parent[last] = choice.value
    elif isinstance(choice, Rename):
        parent[choice.key] = parent.pop(last)
    elif isinstance(choice, Remove):
        del parent[last]
    return edited


def _of_field(path: Path, field: FieldInfo, current: Any) -> Iterator[Choice]:
    kinds = list(_kinds(field.annotation))
    if meant := _meant(kinds, current):
        yield Set(meant)
        return
    if not field.is_required():
        yield Remove()
    section = model_at(path, Graph)
    if section is not None and not field.is_required() and path[0] not in POOLS:
        yield from (Set(example) for example in _sections(section))
    for kind in kinds:
        yield from (Set(option) for option in _examples(kind))


def _meant(kinds: Sequence[Any], current: Any) -> Any:
    """What was certainly meant by arguments in one text, or by variables in a list as Kubernetes
    has them; None for everything else, also for a number in quotes."""
    if tuple in kinds and isinstance(current, str) and current.startswith("-"):
        try:
            return shlex.split(current)
        except ValueError:
            return None
    if dict in kinds and isinstance(current, list):
        entries = [entry for entry in current if isinstance(entry, dict)]
        if len(entries) == len(current) and all({"name", "value"} == set(e) for e in entries):
            return {str(entry["name"]): str(entry["value"]) for entry in entries}
    return None


def _sections(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    """Different values of a section: of each field the first example, the second, and so on."""
    examples = {
        name: [e for kind in _kinds(field.annotation) for e in _examples(kind)]
        for name, field in model.model_fields.items()
    }
    for turn in range(MOST_CHOICES - 1):
        yield {name: each[turn % len(each)] for name, each in examples.items() if each}


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
