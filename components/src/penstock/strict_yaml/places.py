"""Places: from a value of an input file to the line, or the --set, that sets it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Path = tuple[str | int, ...]

_LAST_STEP = re.compile(r"(\.[^.\[]*|\[\d+\])$")
_SECRET_WORDS = {"token", "password", "passwd", "secret", "key", "apikey", "credential"}


class Position(NamedTuple):
    """Where a value is written. Both count from 1; a column counts characters."""

    line: int
    column: int


def place_of(path: Path) -> str:
    """The dotted place of a path: `("decode", "args", 2)` is `decode.args[2]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def parent_of(place: str) -> str:
    """One step up: `decode` of `decode.args`, `decode.args` of `decode.args[2]`, else empty.

    A key that contains dots takes several steps; the places between do not exist and are skipped.
    """
    cut = _LAST_STEP.sub("", place)
    return cut if cut != place else ""


def is_within(place: str, ancestor: str) -> bool:
    """Whether a place is the ancestor or lies below it."""
    return not ancestor or place == ancestor or place.startswith((f"{ancestor}.", f"{ancestor}["))


def looks_secret(place: str) -> bool:
    """Whether the value at a place must not be printed: `engine.env.HF_TOKEN`, `auth.api_key`."""
    if "api_keys" in re.split(r"[.[]", place):
        return True  # a user may write the keys there, instead of the name of their Secret
    last = place.rsplit(".", 1)[-1]
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z]+", last.lower()))


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where each value of a file is set."""

    # Dotted place → its position: that of the key, or of the item of a list.
    positions: Mapping[str, Position]
    # Dotted place → the --set expression that sets it.
    sets: Mapping[str, str] = field(default_factory=dict)

    def position_of(self, place: str) -> Position | None:
        """The position of the place or its nearest ancestor; None if a --set sets it."""
        found = self.nearest(place)
        return None if found in self.sets else self.positions.get(found)

    def line_of(self, place: str) -> int | None:
        """The line of `position_of`."""
        found = self.position_of(place)
        return found.line if found else None

    def column_of(self, place: str) -> int | None:
        """The column of `position_of`."""
        found = self.position_of(place)
        return found.column if found else None

    def set_of(self, place: str) -> str | None:
        """The --set expression that sets the value at the place, if there is one."""
        return self.sets.get(self.nearest(place))

    def nearest(self, place: str) -> str:
        """The place or its nearest existing ancestor; the empty place always exists."""
        while place and place not in self.sets and place not in self.positions:
            place = parent_of(place)
        return place
