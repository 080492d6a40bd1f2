"""The tree of a YAML document: each value with its position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.strict_yaml.places import Path, Position, place_of


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
    found = position_of(node, path)
    return found.line if found else None


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
