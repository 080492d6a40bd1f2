"""Keys of the graph that were renamed: the old ones are read for one release, with a warning.

The loader, the JSON schema and the chart (`files/renamed-keys.yaml`) derive from `RENAMED_KEYS`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import Problem
from penstock.graph.messages import MESSAGES
from penstock.strict_yaml.places import Places, is_within, value_at

T = TypeVar("T")

# Old dotted path → new dotted path. Both parents must be sections of the graph.
RENAMED_KEYS: Mapping[str, str] = {
    "checks.silence": "checks.suppress",
    "hardware.gpu_hour": "hardware.gpu_hour_price",
}


@dataclass(frozen=True, kw_only=True)
class DeprecatedKey:
    """An old key that a graph uses. ``line`` is None where a --set gives the key."""

    old: str
    new: str
    file: str
    line: int | None

    def __str__(self) -> str:
        message, fix = MESSAGES["deprecated_key"].filled(new=self.new)
        place = self.old
        return str(Problem(file=self.file, line=self.line, place=place, message=message, fix=fix))


class DeprecatedKeyWarning(FutureWarning):
    """Issued once for each `DeprecatedKey` when a graph file is read."""

    def __init__(self, key: DeprecatedKey) -> None:
        super().__init__(str(key))
        self.key = key


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """Values and places under the new keys only."""

    values: dict[str, Any]
    places: Places
    deprecations: tuple[DeprecatedKey, ...] = ()
    # Both the old and the new key are given.
    problems: tuple[Problem, ...] = ()


def as_written(place: str, deprecations: tuple[DeprecatedKey, ...]) -> str:
    """The place under the key that the user wrote."""
    for key in deprecations:
        if is_within(place, key.new):
            return key.old + place.removeprefix(key.new)
    return place


def rename_keys(values: Mapping[str, Any], places: Places, source: str, set_file: str) -> Renamed:
    """Move the value of each old key to its new key; ``set_file`` names the source of a --set."""
    result = dict(values)
    positions, sets = dict(places.positions), dict(places.sets)
    deprecations: list[DeprecatedKey] = []
    problems: list[Problem] = []
    for old, new in RENAMED_KEYS.items():
        if not _has(result, old):
            continue
        is_set = places.set_of(old) is not None
        file = set_file if is_set else source
        setting, result = _without(result, old)
        if _has(result, new):
            problems.append(_given_twice(old, new, file, places))
            continue
        deprecations.append(DeprecatedKey(old=old, new=new, file=file, line=places.line_of(old)))
        result = _with(result, new, setting)
        positions, sets = _moved(positions, old, new), _moved(sets, old, new)
    return Renamed(
        values=result,
        places=Places(positions=positions, sets=sets),
        deprecations=tuple(sorted(deprecations, key=lambda key: key.line or 0)),
        problems=tuple(problems),
    )


def warn_of(deprecations: tuple[DeprecatedKey, ...]) -> None:
    """Issue a `DeprecatedKeyWarning` for each; the command line prints them to stderr."""
    for key in deprecations:
        warnings.warn(DeprecatedKeyWarning(key), stacklevel=2)


def _given_twice(old: str, new: str, file: str, places: Places) -> Problem:
    message, fix = MESSAGES["key_given_twice"].filled(old=old, new=new)
    return places.located(Problem(file=file, place=old, message=message, fix=fix))


def _has(values: Any, place: str) -> bool:
    absent = object()
    return value_at(values, place.split("."), absent) is not absent


def _without(values: Mapping[str, Any], place: str) -> tuple[Any, dict[str, Any]]:
    """The value at a place, and a copy of the values without it."""
    key, _, rest = place.partition(".")
    if not rest:
        return values[key], {k: v for k, v in values.items() if k != key}
    setting, inner = _without(values[key], rest)
    return setting, {**values, key: inner}


def _with(values: Mapping[str, Any], place: str, setting: Any) -> dict[str, Any]:
    """A copy of the values with another value at a place."""
    key, _, rest = place.partition(".")
    return {**values, key: _with(values.get(key) or {}, rest, setting) if rest else setting}


def _moved(entries: Mapping[str, T], old: str, new: str) -> dict[str, T]:
    """Entries by place, with those at ``old`` or below it moved to ``new``."""
    return {
        new + place.removeprefix(old) if is_within(place, old) else place: entry
        for place, entry in entries.items()
    }
