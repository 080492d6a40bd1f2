"""YAML text → plain values with the line of each; everything ambiguous in it is a Problem.

Works on libyaml's events, not on PyYAML's nodes: duplicates, anchors and tags are still visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from penstock.errors import GraphError, Problem
from penstock.strict_yaml.places import Path, looks_secret, place_of
from penstock.strict_yaml.scalars import Refusal, read_scalar

DEEPEST = 50
LONGEST_EXCERPT = 100


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML mapping: ``values`` as Helm reads them, ``lines`` by dotted place.

    A refused scalar stands in ``values`` as its text, so that the rest can still be checked.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    problems: tuple[Problem, ...]


def read_document(text: str, source: str) -> Document:
    """Read one YAML document; a syntax error or a document that is no mapping is a GraphError."""
    reader = _Reader(_events(text, source), source)
    values = reader.document()
    return Document(values=values, lines=reader.lines, problems=tuple(reader.problems))


def _events(text: str, source: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        raise GraphError(_syntax_problem(error, text, source)) from error
    except yaml.reader.ReaderError as error:
        raise GraphError(_character_problem(error, text, source)) from error
    except UnicodeEncodeError as error:
        problem = Problem(file=source, message=f"not a Unicode text: {error.reason}")
        raise GraphError(problem) from error


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    shown = lines[line] if line < len(lines) else ""
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return Problem(
        file=source,
        line=line + 1,
        message=f"not valid YAML{_excerpt(shown, column)}: {said}",
        fix=_syntax_fix(shown, column),
    )


def _excerpt(line: str, column: int) -> str:
    """Where in the line the parser stood, unless the line may hold a secret or is very long."""
    if (
        not line.strip()
        or len(line) > LONGEST_EXCERPT
        or looks_secret(line.partition(":")[0].strip())
    ):
        return f" at column {column + 1}"
    return f" at column {column + 1} of `{line.strip()}`"


def _syntax_fix(line: str, column: int) -> str:
    if "\t" in line[: column + 1]:
        return "indent with spaces; YAML allows no tabs there"
    if line[column : column + 1] in ("@", "`", "%"):
        return "quote the value"
    if ": " in line[column:]:
        return "quote a value with ': ' in it, and check the indentation"
    return "check indentation, quotes and brackets here and in the line above"


def _character_problem(error: yaml.reader.ReaderError, text: str, source: str) -> Problem:
    at = error.position
    return Problem(
        file=source,
        line=text.count("\n", 0, at) + 1,
        message=f"not valid YAML: character {text[at : at + 1]!a} is not allowed",
        fix=r'remove it, or write it escaped in double quotes, such as "\x07"',
    )


@dataclass
class _Reader:
    """Recursive descent over the events of one document; collects lines and problems."""

    events: Iterator[yaml.Event]
    source: str
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        next(self.events)  # StreamStart
        start = next(self.events)
        if isinstance(start, yaml.StreamEndEvent):
            raise self._fatal(None, "the file is empty", "start from one in dynamo_graphs/")
        if isinstance(start, yaml.DocumentStartEvent) and (start.version or start.tags):
            self._refuse(start, (), "directives (%YAML, %TAG) are refused", "remove them")
        root = next(self.events)
        if not isinstance(root, yaml.MappingStartEvent):
            raise self._no_mapping(root)
        self._refuse_extras(root, ())
        values = self._map(())
        next(self.events)  # DocumentEnd
        if not isinstance(after := next(self.events), yaml.StreamEndEvent):
            message = "a second document starts here; Helm would read only the first"
            raise self._fatal(after, message, "keep one document in a file")
        return values

    def _no_mapping(self, root: yaml.Event) -> GraphError:
        if isinstance(root, yaml.ScalarEvent) and root.value in ("", "~", "null"):
            return self._fatal(root, "the document is empty", "start from one in dynamo_graphs/")
        kind = "a list" if isinstance(root, yaml.SequenceStartEvent) else "a single value"
        message = f"a graph is a map of sections, this is {kind}"
        return self._fatal(root, message, "start from one in dynamo_graphs/")

    def _value(self, event: yaml.Event, path: Path) -> Any:
        self._refuse_extras(event, path)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if len(path) > DEEPEST:
            raise self._fatal(event, f"nested more than {DEEPEST} deep", "flatten it")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path)
        if isinstance(event, yaml.MappingStartEvent):
            return self._map(path)
        return None  # an alias, refused above

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        if event.style or _tag(event) is not None:
            return event.value
        value = read_scalar(event.value)
        if not isinstance(value, Refusal):
            return value
        if looks_secret(place_of(path)):
            value = Refusal(message="YAML readers differ on this value", fix="quote it")
        self._refuse(event, path, value.message, value.fix)
        return event.value

    def _list(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            here = (*path, len(items))
            self._mark(event, here)
            items.append(self._value(event, here))
        return items

    def _map(self, path: Path) -> dict[str, Any]:
        items: dict[str, Any] = {}
        seen: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, path)
            here = (*path, key)
            line = _line(event)
            if key in seen:
                message = f"stands twice, first on line {seen[key]}; Helm would take this one"
                self._refuse(event, here, message, "keep one of them")
            else:
                self._mark(event, here)
            seen.setdefault(key, line)
            items[key] = self._value(next(self.events), here)
        return items

    def _key(self, event: yaml.Event, path: Path) -> str:
        """A mapping's key as a string; a problem if it is anything else."""
        if not isinstance(event, yaml.ScalarEvent):
            message = "a map or list stands where a key must"
            raise self._fatal(event, message, "quote the key; a graph holds no {{ templates }}")
        self._refuse_extras(event, path)
        value = event.value if event.style else read_scalar(event.value)
        if not isinstance(value, str):
            message = f"the key {event.value or 'without text'} is not read as a string"
            self._refuse(event, (*path, event.value), message, f'quote it: "{event.value}"')
        return str(event.value)

    def _refuse_extras(self, event: yaml.Event, path: Path) -> None:
        """Anchors, aliases and tags: a value with two places has no line of its own to edit."""
        if isinstance(event, yaml.AliasEvent):
            message = f"*{event.anchor}: aliases are refused, each value has one place"
            fix = "write the value out; what all pools share goes under engine, env or pod"
            self._refuse(event, path, message, fix)
            return
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            message = f"&{event.anchor}: anchors are refused, each value has one place"
            self._refuse(event, path, message, f"remove &{event.anchor}")
        if (tag := _tag(event)) is not None:
            message = f"the tag {tag} is refused: YAML readers treat tags differently"
            self._refuse(event, path, message, "remove it, and quote the value if it is a string")

    def _mark(self, event: yaml.Event, path: Path) -> None:
        self.lines[place_of(path)] = _line(event)

    def _refuse(self, event: yaml.Event, path: Path, message: str, fix: str) -> None:
        line = _line(event)
        place = place_of(path)
        self.problems.append(
            Problem(file=self.source, line=line, place=place, message=message, fix=fix)
        )

    def _fatal(self, event: yaml.Event | None, message: str, fix: str) -> GraphError:
        line = _line(event) if event is not None else None
        return GraphError(Problem(file=self.source, line=line, message=message, fix=fix))


def _line(event: yaml.Event) -> int:
    """The line an event begins on, from 1."""
    return int(event.start_mark.line) + 1 if event.start_mark else 1


def _tag(event: yaml.Event) -> str | None:
    """The tag that the text names, such as `!!str`; None without one."""
    if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag:
        return str(event.tag).replace("tag:yaml.org,2002:", "!!")
    return None
