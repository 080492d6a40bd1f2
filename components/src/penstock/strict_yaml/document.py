"""YAML text → values with the position of each; what its kind of file does not allow is a Problem.

`read_document` reads a file of one mapping, `read_documents` a stream of documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from penstock.errors import GraphError, Problem, ProblemKind
from penstock.strict_yaml.events import events, explicit_tag, position_of_event
from penstock.strict_yaml.kind import (
    MOST_ITEMS,
    MOST_KEYS,
    MOST_PROBLEMS,
    Dialect,
    DocumentKind,
    RepeatedKeys,
)
from penstock.strict_yaml.loader import DEEPEST
from penstock.strict_yaml.places import (
    Node,
    Path,
    Position,
    Repeated,
    looks_secret,
    place_of,
    positions_by_place,
)
from penstock.strict_yaml.scalars import (
    MERGE,
    ScalarProblem,
    UnknownTagError,
    kubernetes_scalar,
    read_scalar,
    tag_of,
)

REST = "Correct the problems above, and check the file again."
# All except tab, line feed and carriage return.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML mapping."""

    # As Helm reads them; a refused scalar is its text, so that the rest can still be checked.
    values: Mapping[str, Any]
    # Dotted place → position.
    positions: Mapping[str, Position]
    node: Node
    problems: tuple[Problem, ...]


def read_document(text: str, source: str, kind: DocumentKind) -> Document:
    """Read one mapping; GraphError for a syntax error or a document that is not a mapping."""
    reader = _Reader(events(text, source, kind), source, kind)
    root = reader.only_document()
    return Document(
        values=root.value,
        positions=positions_by_place(root),
        node=root,
        problems=tuple(reader.problems),
    )


def read_documents(
    text: str, source: str, kind: DocumentKind
) -> tuple[tuple[Node, ...], list[Problem]]:
    """The root of every document, and all problems; those after a syntax error are not read."""
    reader = _Reader(events(text, source, kind), source, kind)
    roots = []
    try:
        for root in reader.documents():
            roots.append(root)
    except GraphError as error:
        return tuple(roots), [*reader.problems, *error.problems]
    return tuple(roots), reader.problems


@dataclass
class _Reader:
    """Recursive descent over the events of a text; collects nodes and problems."""

    events: Iterator[yaml.Event]
    source: str
    kind: DocumentKind
    problems: list[Problem] = field(default_factory=list)
    # Of all mappings and of all lists so far.
    keys: int = 0
    items: int = 0
    # Anchor → its node, in the current document; None while the node is being read.
    anchors: dict[str, Node | None] = field(default_factory=dict)

    @property
    def is_strict(self) -> bool:
        return self.kind.dialect is Dialect.STRICT

    def only_document(self) -> Node:
        """The one document of the text, which must be a mapping."""
        next(self.events)  # StreamStart
        start = next(self.events)
        if isinstance(start, yaml.StreamEndEvent):
            raise self._fatal(None, "the file is empty", self._start_from)
        self._check_directives(start)
        root = next(self.events)
        if not isinstance(root, yaml.MappingStartEvent):
            raise self._not_a_mapping(root)
        node = self._node(root, ())
        next(self.events)  # DocumentEnd
        if not isinstance(after := next(self.events), yaml.StreamEndEvent):
            raise self._second_document(after)
        return node

    def documents(self) -> Iterator[Node]:
        """Every document of the text."""
        next(self.events)  # StreamStart
        while not isinstance(next(self.events), yaml.StreamEndEvent):
            self.anchors = {}
            yield self._node(next(self.events), ())
            next(self.events)  # DocumentEnd

    @property
    def _start_from(self) -> str:
        return f"Start from {self.kind.example}."

    def _check_directives(self, start: yaml.Event) -> None:
        if isinstance(start, yaml.DocumentStartEvent) and (start.version or start.tags):
            message = "YAML directives (%YAML, %TAG) are not supported"
            self._report(start, (), message, "Remove them.")

    def _not_a_mapping(self, root: yaml.Event) -> GraphError:
        if isinstance(root, yaml.ScalarEvent) and root.value in ("", "~", "null"):
            return self._fatal(root, "the document is empty", self._start_from)
        actual = "a list" if isinstance(root, yaml.SequenceStartEvent) else "a single value"
        message = f"{self.kind.name} is a mapping of sections, but this is {actual}"
        return self._fatal(root, message, self._start_from)

    def _second_document(self, event: yaml.Event) -> GraphError:
        effect = "; Helm would read only the first" if self.kind.is_read_by_helm else ""
        message = f"a second document starts here{effect}"
        return self._fatal(event, message, "Keep one document in a file.")

    def _node(self, event: yaml.Event, path: Path) -> Node:
        if self.is_strict:
            self._reject_anchors_and_tags(event, path)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor is not None:
            self._declare(anchor, event, path)
        node = self._value(event, path)
        if anchor is not None:
            self.anchors[anchor] = node
        return node

    def _value(self, event: yaml.Event, path: Path) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            style = event.style or ""
            self._reject_control_characters(event, path)
            value, position = self._scalar(event, path), position_of_event(event)
            return Node(value, position, style, event.value)
        self._require_shallow(event, len(path))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(event, path)
        return self._mapping(event, path)

    def _require_shallow(self, event: yaml.Event, depth: int) -> None:
        if depth > DEEPEST:
            message = f"nested more than {DEEPEST} levels deep"
            raise self._fatal(event, message, "Flatten the structure.")

    def _declare(self, anchor: str, event: yaml.Event, path: Path) -> None:
        if anchor in self.anchors and not self.is_strict:
            message = f"the anchor &{anchor} is defined twice"
            self._report(event, path, message, "Rename one of them.")
        self.anchors[anchor] = None

    def _alias(self, event: yaml.AliasEvent, path: Path) -> Node:
        """The anchored node itself, so that nested aliases take no more memory than their text.

        In the strict dialect, whose aliases are problems, only a scalar: a caller that walks over
        nested aliases would not come to an end.
        """
        node = self.anchors.get(event.anchor or "")
        if node is not None and not (self.is_strict and node.children):
            return node
        if not self.is_strict:
            is_open = event.anchor in self.anchors
            problem = "refers to a value that contains it" if is_open else "has no anchor before it"
            message = f"the alias *{event.anchor} {problem}"
            self._report(event, path, message, "Write the value out.")
        return Node(None, position_of_event(event))

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        if not self.is_strict:
            return self._kubernetes_scalar(event, path)
        if event.style or explicit_tag(event) is not None:
            return event.value
        value = read_scalar(event.value)
        if not isinstance(value, ScalarProblem):
            return value
        if looks_secret(place_of(path)):
            value = ScalarProblem(message="YAML readers differ on this value", fix="Quote it.")
        self._report(event, path, value.message, value.fix)
        return event.value

    def _kubernetes_scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        try:
            return kubernetes_scalar(event)
        except UnknownTagError as error:
            self._report(event, path, f"unknown YAML tag {error}", "Write a plain value.")
            return None

    def _list(self, start: yaml.Event, path: Path) -> Node:
        node = Node([], position_of_event(start))
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            index = len(node.value)
            self.items += 1
            self._require_few(event, self.items, MOST_ITEMS, "items of lists")
            item = self._node(event, (*path, index))
            node.children[index] = position_of_event(event), item
            node.value.append(item.value)
        return node

    def _require_few(self, event: yaml.Event, count: int, most: int, what: str) -> None:
        if self.kind.is_small and count > most:
            message = f"more than {most} {what}, the limit for {self.kind.name}"
            raise self._fatal(event, message, "Remove what is not a setting.")

    def _mapping(self, start: yaml.Event, path: Path) -> Node:
        node = Node({}, position_of_event(start))
        merged: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not self.is_strict and self._is_merge(event):
                merged = self._merged(next(self.events), path) | merged
                continue
            key = self._key(event, path)
            if key is None:
                self._skip(next(self.events))
                continue
            self._entry(node, key, event, path)
        node.value = merged | node.value
        return node

    def _entry(self, node: Node, key: str, event: yaml.Event, path: Path) -> None:
        """Read the value of a key into the node of its mapping."""
        self.keys += 1
        self._require_few(event, self.keys, MOST_KEYS, "keys")
        position, here = position_of_event(event), (*path, key)
        value = self._node(next(self.events), here)
        if key in node.children:
            self._check_duplicate(node, key, value.value, event, here)
        node.children[key] = position, value
        node.value[key] = value.value

    def _check_duplicate(
        self, node: Node, key: str, value: Any, event: yaml.Event, here: Path
    ) -> None:
        """Report a second value of a key, or note it in its mapping where it is allowed."""
        first, allowed = node.children[key][0].line, self.kind.repeated_keys
        is_lost = _is_lost(node.value[key], value)
        if allowed is RepeatedKeys.ALLOWED or (
            allowed is RepeatedKeys.WITHOUT_LOSS and not is_lost
        ):
            was_lost = key in node.repeated and node.repeated[key].is_lost
            node.repeated[key] = Repeated(line=first, is_lost=is_lost or was_lost)
            return
        effect = f"; {self.kind.reads_last} this one" if self.kind.reads_last else ""
        message = f"duplicate key `{key}`, first on line {first}{effect}"
        self._report(event, here, message, "Keep one of them.", ProblemKind.REPEATED)

    def _key(self, event: yaml.Event, path: Path) -> str | None:
        """A mapping's key as a string; a problem if it is anything else."""
        if isinstance(event, yaml.AliasEvent) and not self.is_strict:
            return str(self._alias(event, path).value)
        if not isinstance(event, yaml.ScalarEvent):
            message = "the key is a mapping or list, as in an unrendered template `{{ … }}`"
            self._report(event, path, message, "Quote the key, or render the template first.")
            self._skip(event)
            return None
        if not self.is_strict:
            self._node(event, path)  # Kubernetes converts to JSON, whose keys are strings
            return str(event.value)
        self._reject_anchors_and_tags(event, path)
        self._reject_control_characters(event, path)
        if event.value == "<<" and not event.style:
            fix = " ".join(filter(None, ("Write the merged keys out.", self.kind.sharing)))
            self._report(event, (*path, "<<"), "merge keys (`<<:`) are not supported", fix)
            return "<<"
        value = event.value if event.style else read_scalar(event.value)
        if not isinstance(value, str):
            message = f"the key {event.value or 'without text'} is not read as a string"
            self._report(event, (*path, event.value), message, f'Quote it: "{event.value}"')
        return str(event.value)

    def _skip(self, event: yaml.Event) -> None:
        """Pass over a value."""
        depth = 0
        while True:
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            self._require_shallow(event, depth)
            if depth == 0:
                return
            event = next(self.events)

    def _is_merge(self, event: yaml.Event) -> bool:
        return isinstance(event, yaml.ScalarEvent) and tag_of(event) == MERGE

    def _merged(self, event: yaml.Event, path: Path) -> dict[str, Any]:
        """The entries that a merge key `<<` brings in."""
        value = self._node(event, (*path, "<<")).value
        merged: dict[str, Any] = {}
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                merged = part | merged
            else:
                self._report(event, path, "`<<` needs a mapping", "Refer to an anchored mapping.")
        return merged

    def _reject_anchors_and_tags(self, event: yaml.Event, path: Path) -> None:
        """Report anchors, aliases and tags: an aliased value has no line of its own to edit."""
        if isinstance(event, yaml.AliasEvent):
            message = f"*{event.anchor}: aliases are not supported"
            fix = " ".join(part for part in ("Write the value out.", self.kind.sharing) if part)
            self._report(event, path, message, fix)
            return
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            message = f"&{event.anchor}: anchors are not supported"
            self._report(event, path, message, f"Remove &{event.anchor}.")
        if (tag := explicit_tag(event)) is not None:
            message = f"the tag {tag} is not supported: YAML readers treat tags differently"
            self._report(event, path, message, "Remove it, and quote the value if it is a string.")

    def _reject_control_characters(self, event: yaml.ScalarEvent, path: Path) -> None:
        """Report NUL, which ends the argument of a process, and what a terminal would execute; and
        escape them, as the value is part of messages."""
        character = CONTROL.search(event.value)
        if character is not None:
            event.value = CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", event.value)
            message = f"contains the control character \\x{ord(character[0]):02x}"
            self._report(event, path, message, "Remove it.")

    def _report(
        self,
        event: yaml.Event,
        path: Path,
        message: str,
        fix: str,
        kind: ProblemKind = ProblemKind.OTHER,
    ) -> None:
        line, column = position_of_event(event)
        problem = Problem(
            file=self.source,
            line=line,
            column=column,
            place=place_of(path),
            message=message,
            fix=fix,
            kind=kind,
        )
        self.problems.append(problem)
        if len(self.problems) == MOST_PROBLEMS:
            problems, self.problems = self.problems, []
            message = f"more than {MOST_PROBLEMS} problems; the rest of the file is not read"
            raise GraphError(*problems, replace(problem, place="", message=message, fix=REST))

    def _fatal(self, event: yaml.Event | None, message: str, fix: str) -> GraphError:
        line, column = position_of_event(event) if event is not None else (None, None)
        problem = Problem(file=self.source, line=line, column=column, message=message, fix=fix)
        return GraphError(problem)


def _is_lost(first: Any, last: Any) -> bool:
    """Whether a reader that uses the last value of a key loses what the first one states."""
    is_same = type(first) is type(last) and first == last
    return first not in (None, {}, [], "") and not is_same
