"""Places: from a value of an input file to the line, or the --set, that sets it; the tree of a
document, in which each value has its position."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock.errors import Problem

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


def value_at(values: Any, path: Sequence[str | int], default: Any = None) -> Any:
    """The value at a path of nested mappings and lists; ``default`` if there is none."""
    for step in path:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return default
    return values


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
        existing = self.nearest(place)
        return None if existing in self.sets else self.positions.get(existing)

    def line_of(self, place: str) -> int | None:
        """The line of `position_of`."""
        position = self.position_of(place)
        return position.line if position else None

    def located(self, problem: Problem) -> Problem:
        """The problem with the line and the column of its place."""
        line, column = self.position_of(problem.place) or (None, None)
        return replace(problem, line=line, column=column)

    def set_of(self, place: str) -> str | None:
        """The --set expression that sets the value at the place, if there is one."""
        return self.sets.get(self.nearest(place))

    def nearest(self, place: str) -> str:
        """The place or its nearest existing ancestor; the empty place always exists."""
        while place and place not in self.sets and place not in self.positions:
            place = parent_of(place)
        return place


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """A key whose last value is used."""

    # Of the value before.
    line: int
    # Whether that value states something that the last one does not.
    is_lost: bool


@dataclass(eq=False, slots=True)
class Node:
    """One value of a document and where it is written."""

    value: Any
    # Where the value begins.
    position: Position
    # The style of a scalar: `|`, `>`, a quote, or nothing for a plain one.
    style: str = ""
    # The text of a scalar, which may differ from its value: `y` is true to Kubernetes.
    text: str = ""
    # Key or index → the entry's position (that of its key, in a mapping) and node, without what a
    # merge key brings in.
    children: dict[str | int, tuple[Position, Node]] = field(default_factory=dict)
    # The keys that a mapping has twice, where that is allowed.
    repeated: dict[str, Repeated] = field(default_factory=dict)


def position_of(node: Node | None, path: Path) -> Position | None:
    """The position of the entry at a path, or of its nearest ancestor that the text contains."""
    if node is None:
        return None
    position = node.position
    for step in path:
        if step not in node.children:
            break
        position, node = node.children[step]
    return position


def line_of(node: Node | None, path: Path) -> int | None:
    """The line of `position_of`."""
    position = position_of(node, path)
    return position.line if position else None


def node_at(node: Node | None, path: Path) -> Node | None:
    """The node at a path; None where the text has none (a merged key, or no text at all)."""
    for step in path:
        if node is None or step not in node.children:
            return None
        _, node = node.children[step]
    return node


def texts_by_place(node: Node, path: Path = ()) -> dict[str, str]:
    """The text of every plain scalar below a node, which may differ from its value (1.10 is 1.1),
    by its dotted place; there are no aliases."""
    texts: dict[str, str] = {}
    for step, (_, child) in node.children.items():
        if child.text and not child.style:
            texts[place_of((*path, step))] = child.text
        texts |= texts_by_place(child, (*path, step))
    return texts


def positions_by_place(node: Node, path: Path = ()) -> dict[str, Position]:
    """The position of every value below a node, by its dotted place. The tree holds no aliases."""
    positions: dict[str, Position] = {}
    for step, (position, child) in node.children.items():
        positions[place_of((*path, step))] = position
        positions |= positions_by_place(child, (*path, step))
    return positions
