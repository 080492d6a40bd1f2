"""The tree of a YAML document: each value with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.strict_yaml.places import Path, place_of


@dataclass(eq=False, slots=True)
class Node:
    """One value of a document and where it is written."""

    value: Any
    # The line on which the value begins, from 1.
    line: int
    # The style of a scalar: `|`, `>`, a quote, or nothing for a plain one.
    style: str = ""
    # Key or index → the entry's line (that of its key, in a mapping) and node, without what a
    # merge key brings in.
    children: dict[str | int, tuple[int, Node]] = field(default_factory=dict)


def line_of(node: Node | None, path: Path) -> int | None:
    """The line of the value at a path, or of its nearest ancestor that the text contains."""
    if node is None:
        return None
    line = node.line
    for step in path:
        if step not in node.children:
            break
        line, node = node.children[step]
    return line


def node_at(node: Node | None, path: Path) -> Node | None:
    """The node at a path; None where the text has none (a merged key, or no text at all)."""
    for step in path:
        if node is None or step not in node.children:
            return None
        _, node = node.children[step]
    return node


def lines_by_place(node: Node, path: Path = ()) -> dict[str, int]:
    """The line of every value below a node, by its dotted place. The tree holds no aliases."""
    lines: dict[str, int] = {}
    for step, (line, child) in node.children.items():
        lines[place_of((*path, step))] = line
        lines |= lines_by_place(child, (*path, step))
    return lines
