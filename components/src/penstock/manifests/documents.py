"""YAML text to documents that still know their lines; `read` walks them with `Cursor`.

Kubernetes and PyYAML read some scalars differently (`y`, `1e3`, `0o17`, `12:30`). What the cluster
would do with the file is what counts here, so plain scalars are read as Kubernetes' parser does.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import yaml

from penstock.errors import Problem

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml: the same result, slower
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_YES_NO = re.compile(r"[yYnN]")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
_OCTAL = re.compile(r"[-+]?0o[0-7]+")


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML document. ``problems`` collects what is wrong with the whole file.

    ``node`` is None for objects that never were text (rendered in this process): no line numbers.
    """

    value: object
    source: str
    node: yaml.Node | None = None
    problems: list[Problem] = field(default_factory=list)


def parse(text: str, source: str) -> tuple[tuple[Document, ...], list[Problem]]:
    """Every document that is not empty, and the problems of YAML itself."""
    problems: list[Problem] = []
    documents = []
    for node in _compose(text, source, problems):
        value = _Builder(source, problems).build(node)
        if value is not None:
            document = Document(value=value, source=source, node=node, problems=problems)
            documents.append(document)
    return tuple(documents), problems


def _compose(text: str, source: str, problems: list[Problem]) -> Iterator[yaml.Node]:
    try:
        yield from yaml.compose_all(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.append(
            Problem(
                file=source,
                line=mark.line + 1 if mark else None,
                message=f"not YAML: {error.problem or error.context}",
                fix="mend the syntax at this line, or render the template first",
            )
        )
    except (yaml.YAMLError, RecursionError) as error:
        problems.append(Problem(file=source, message=f"not YAML: {error}"))


def check_duplicates(node: yaml.Node, source: str) -> list[Problem]:
    """The duplicate keys of an engine's own YAML file, whose values PyYAML itself reads."""
    problems: list[Problem] = []
    _Builder(source, problems).build(node)
    return problems


class _Builder:
    """Nodes to values; aliases share their value, so a bomb of aliases costs no memory."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = problems
        self.built: dict[int, object] = {}
        self.open: set[int] = set()

    def build(self, node: yaml.Node) -> object:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self.open:
            self._problem(node, "an alias refers to what it stands in", "write the value out")
            return None
        if id(node) not in self.built:
            self.open.add(id(node))
            self.built[id(node)] = self._collection(node)
            self.open.discard(id(node))
        return self.built[id(node)]

    def _collection(self, node: yaml.Node) -> object:
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item) for item in node.value]
        return self._mapping(node)

    def _mapping(self, node: yaml.Node) -> dict[str, object]:
        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged = self._merge(value_node) | merged
                continue
            key = self._key(key_node)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            if key in own:
                message = f"the key {key!r} stands twice, first in line {lines[key]}"
                self._problem(key_node, message, "keep one of them")
                continue
            own[key], lines[key] = self.build(value_node), line
        return merged | own

    def _merge(self, node: yaml.Node) -> dict[str, object]:
        value = self.build(node)
        parts = value if isinstance(value, list) else [value]
        merged: dict[str, object] = {}
        for part in parts:
            if isinstance(part, dict):
                merged = part | merged
            else:
                self._problem(node, "`<<` needs a mapping", "point it at an anchored mapping")
        return merged

    def _key(self, node: yaml.Node) -> str | None:
        if isinstance(node, yaml.ScalarNode):
            value = self._scalar(node)
            # Kubernetes goes through JSON, whose keys are strings.
            return node.value if not isinstance(value, str) else value
        text = "a key that is no text; is this a template that was not rendered?"
        self._problem(node, text, "render the template, then read what comes out")
        return None

    def _scalar(self, node: yaml.ScalarNode) -> object:
        kind = node.tag.removeprefix(_TAG)
        if kind in ("null", "bool", "int", "float"):
            return self._typed(node, kind)
        if kind in ("str", "timestamp", "binary", "value", "merge"):
            # A plain scalar has the style None, or "" from libyaml.
            return node.value if node.style else _as_kubernetes(node.value)
        self._problem(node, f"unknown YAML tag {node.tag}", "write a plain value")
        return None

    def _typed(self, node: yaml.ScalarNode, kind: str) -> object:
        text = node.value
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in ("yes", "true", "on")
        if ":" in text:
            return text  # PyYAML's base 60; Kubernetes reads a string
        try:
            return _as_int(text) if kind == "int" else _as_float(text)
        except ValueError:
            return text

    def _problem(self, node: yaml.Node, message: str, fix: str) -> None:
        line = node.start_mark.line + 1
        self.problems.append(Problem(file=self.source, line=line, message=message, fix=fix))


def _as_int(text: str) -> int:
    digits = text.replace("_", "").lower()
    sign, bare = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
    if len(bare) > 1 and bare[0] == "0" and bare[1].isdigit():
        return int(sign + bare, 8)
    return int(sign + bare, 0)


def _as_float(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _as_kubernetes(text: str) -> object:
    """A plain scalar that PyYAML takes for text, as Kubernetes' YAML 1.1 parser takes it."""
    if _YES_NO.fullmatch(text):
        return text in "yY"
    if _FLOAT.fullmatch(text):
        return float(text)
    if _OCTAL.fullmatch(text):
        return int(text.replace("0o", ""), 8)
    return text


def line_of(node: yaml.Node | None, path: tuple[Hashable, ...]) -> int | None:
    """The line of what ``path`` names, or of the nearest part above it that the text has."""
    if node is None:
        return None
    line = node.start_mark.line + 1
    for step in path:
        found = _child(node, step)
        if found is None:
            break
        line, node = found
    return line


def _child(node: yaml.Node, step: Hashable) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None


def node_at(node: yaml.Node | None, path: tuple[Hashable, ...]) -> yaml.Node | None:
    """The node that ``path`` names, None where the text has none (a merge key, no text at all)."""
    for step in path:
        found = _child(node, step) if node is not None else None
        node = found[1] if found else None
    return node
