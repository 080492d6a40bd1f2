"""Which lines of a YAML text hold which values, also in an engine's file inside a ConfigMap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A value: its path, its lines (from 1) and its text; a mapping or list has no text.

    The first step of a path is the document's kind, or empty for a graph. Items of a list are
    named by their `name`, or else by their index.
    """

    path: Path
    first: int
    last: int
    text: str | None


@dataclass
class _Walk:
    nodes: list[Node] = field(default_factory=list)

    def add(self, path: Path, key: yaml.Node, value: yaml.Node, shift: int) -> None:
        first = key.start_mark.line + 1 + shift
        last = value.end_mark.line + 1 + shift - (value.end_mark.column == 0)
        if isinstance(value, yaml.ScalarNode):
            self.nodes.append(Node(path=path, first=first, last=max(first, last), text=value.value))
            if value.style == "|" and path[0] == "ConfigMap":
                self._inner(path, value, first)
            return
        self.nodes.append(Node(path=path, first=first, last=first, text=None))
        self.below(path, value, shift)

    def below(self, path: Path, value: yaml.Node, shift: int) -> None:
        if isinstance(value, yaml.MappingNode):
            for key, child in value.value:
                self.add((*path, key.value), key, child, shift)
        elif isinstance(value, yaml.SequenceNode):
            for index, child in enumerate(value.value):
                self.add((*path, _name(child) or index), child, child, shift)

    def _inner(self, path: Path, value: yaml.ScalarNode, first: int) -> None:
        """The settings of an engine's file, which is a text in the ConfigMap."""
        try:
            root = yaml.compose(value.value, LOADER)
        except yaml.YAMLError:
            return
        if isinstance(root, yaml.MappingNode):
            self.nodes[-1] = Node(path=path, first=first, last=first, text=None)
            self.below(path, root, first)


def _name(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return next((str(v.value) for k, v in node.value if k.value == "name"), "")
    return ""


def nodes_of(text: str) -> list[Node]:
    """All values of all documents, in the order of their lines; of a text that is not YAML, those
    of the documents before the mistake."""
    walk = _Walk()
    for document in _documents(text.encode("utf-8", errors="replace").decode("utf-8")):
        values = {k.value: v.value for k, v in getattr(document, "value", ())} if document else {}
        kind = str(values.get("kind", ""))
        name = _name(_value(document, "metadata")) if kind == "ConfigMap" else ""
        walk.below((kind, name) if name else (kind,), document, 0)
    return walk.nodes


def _documents(text: str) -> Iterator[Any]:
    try:
        yield from yaml.compose_all(text, LOADER)
    except yaml.YAMLError:
        return


def _value(node: Any, key: str) -> Any:
    return next((v for k, v in node.value if k.value == key), None)


def flag_groups(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """The items of each list of texts: a flag with its values is one group."""
    group: list[Node] = []
    for node in nodes:
        is_item = isinstance(node.path[-1], int) and node.text is not None
        same = group and is_item and node.path[:-1] == group[-1].path[:-1]
        if group and (not same or str(node.text).startswith("--")):
            yield group
            group = []
        if is_item:
            group.append(node)
    if group:
        yield group
