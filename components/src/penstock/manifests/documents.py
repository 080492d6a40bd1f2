"""The documents of a manifest; a `Cursor` is a value with its place, so that every problem names
file, line and path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.errors import Problem, ProblemKind
from penstock.strict_yaml.document import read_documents
from penstock.strict_yaml.kind import MOST_PROBLEMS, Dialect, DocumentKind, RepeatedKeys
from penstock.strict_yaml.places import Node, Position, node_at, place_of, position_of

MIB = 2**20
MOST_CHARACTERS = 3 * MIB // 2  # of a file; reading takes about a second per MiB
_CRD = re.compile(r"^kind: *[\"']?CustomResourceDefinition\b", re.MULTILINE)
MANIFEST = DocumentKind(
    name="a manifest",
    dialect=Dialect.KUBERNETES,
    may_quote_lines=False,  # the file may contain a Secret
    # kubectl uses the last value (tried with 1.32); PS009 reports it.
    repeated_keys=RepeatedKeys.ALLOWED,
)


class ProblemList(list[Problem]):
    """Distinct problems, at most `MOST_PROBLEMS` of them."""

    def add(self, problem: Problem) -> None:
        if len(self) < MOST_PROBLEMS and problem not in self:
            self.append(problem)
            if len(self) == MOST_PROBLEMS:
                self.append(
                    Problem(
                        file=problem.file,
                        message=f"more than {MOST_PROBLEMS} problems; the rest is not listed",
                    )
                )


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML document."""

    value: object
    # The name of the file, for messages.
    source: str
    # None for an object that was not read from text: its problems have no line.
    node: Node | None = None
    # What is wrong with the whole file; all its documents share the list.
    problems: ProblemList = field(default_factory=ProblemList)


def parse(text: str, source: str) -> tuple[tuple[Document, ...], list[Problem]]:
    """Every document that is not empty, and the problems of the YAML itself."""
    text = _without_crds(text)
    if len(text) > MOST_CHARACTERS:
        return (), [too_large(text, source, "a manifest, without its CRDs,")]
    roots, yaml_problems = read_documents(text, source, MANIFEST)
    problems = ProblemList(yaml_problems)
    documents = tuple(
        Document(value=root.value, source=source, node=root, problems=problems)
        for root in roots
        if root.value is not None
    )
    return documents, problems


def _without_crds(text: str) -> str:
    """The text without the content of its CustomResourceDefinitions, on the same lines: each has
    up to 1.6 MB, and none is part of a deployment."""
    if not _CRD.search(text):
        return text
    parts = re.split(r"^(---|\.\.\.)", text, flags=re.MULTILINE)
    return "".join(_only_lines(part) if _CRD.search(part) else part for part in parts)


def _only_lines(crd: str) -> str:
    return "\n" * (crd.count("\n") - 1) + "kind: CustomResourceDefinition\n"


def too_large(text: str, source: str, kind: str) -> Problem:
    size, limit = f"{len(text) / MIB:.1f} MiB", f"{MOST_CHARACTERS / MIB} MiB"
    return Problem(
        file=source,
        message=f"is {size}; the limit for {kind} is {limit}",
        fix="Split it, or remove what is not a manifest.",
    )


@dataclass(frozen=True)
class Cursor:
    """One value of a document with its path; ``value`` is None if the document has no value there.

    The typed getters report a value of the wrong type and treat it as absent, so that one run
    reports every problem of a file.
    """

    document: Document
    value: object
    path: tuple[str | int, ...] = ()

    @classmethod
    def at_root(cls, document: Document) -> Cursor:
        return cls(document, document.value)

    def __getitem__(self, key: str) -> Cursor:
        child = self.value.get(key) if isinstance(self.value, dict) else None
        return Cursor(self.document, child, (*self.path, key))

    def at(self, *keys: str) -> Cursor:
        cursor = self
        for key in keys:
            cursor.mapping()
            cursor = cursor[key]
        return cursor

    @property
    def is_absent(self) -> bool:
        return self.value is None

    @property
    def place(self) -> str:
        """`spec.components[0].podTemplate`"""
        return place_of(self.path)

    @property
    def position(self) -> Position | None:
        return position_of(self.document.node, self.path)

    @property
    def line(self) -> int | None:
        position = self.position
        return position.line if position else None

    def problem(self, message: str, fix: str = "", kind: ProblemKind = ProblemKind.OTHER) -> None:
        line, column = self.position or (None, None)
        problem = Problem(
            file=self.document.source,
            line=line,
            column=column,
            place=self.place,
            message=message,
            fix=fix,
            kind=kind,
        )
        self.document.problems.add(problem)

    def mapping(self) -> dict[str, object]:
        if isinstance(self.value, dict):
            return self.value
        if not self.is_absent:
            self.problem(
                f"must be a mapping, got {_shown(self.value)}", "Write `key: value` lines."
            )
        return {}

    def entries(self) -> Iterator[tuple[str, Cursor]]:
        for key in self.mapping():
            yield key, self[key]

    def items(self) -> Iterator[Cursor]:
        if isinstance(self.value, list):
            for index, item in enumerate(self.value):
                yield Cursor(self.document, item, (*self.path, index))
        elif not self.is_absent:
            self.problem(
                f"must be a list, got {_shown(self.value)}", "Write a list, each item after `- `."
            )

    def text(self) -> str | None:
        if isinstance(self.value, str):
            return self.value
        if not self.is_absent:
            self.problem(*self.string_problem())
        return None

    @property
    def shown(self) -> str:
        """The value in a message, shortened."""
        return _shown(self.value)

    def string_problem(self) -> tuple[str, str]:
        """What Kubernetes reads where a string is expected, and how to write the string."""
        text = self.shown
        if isinstance(self.value, (dict, list)):
            return f"must be a string, got {text}", "Write a string."
        node = node_at(self.document.node, self.path)
        written = node.text if node is not None and node.text else text
        is_literal = written.lower() == text
        got = f"got {text}" if is_literal else f"but Kubernetes reads {written} as {text}"
        return f"must be a string, {got}", f'Quote it: "{written}"'

    def texts(self) -> tuple[str, ...] | None:
        """A list of strings; None if it is absent."""
        if self.is_absent:
            return None
        texts = []
        for item in self.items():
            if item.is_absent:
                item.problem(
                    "must be a string, got nothing", 'Write a value, or "" for an empty string.'
                )
            texts.append(item.text() or "")
        return tuple(texts)

    def count(self, *, least: int = 0, most: int | None = None) -> int | None:
        """An integer; to Kubernetes, booleans and strings of digits are not integers."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            if self.value < least:
                message = f"must be at least {least}, got {_shown(self.value)}"
                self.problem(message, f"Write {least} or more.")
            elif most is not None and self.value > most:
                message = f"must be at most {most}, got {_shown(self.value)}"
                self.problem(message, f"Write {most} or less.")
            else:
                return self.value
        elif not self.is_absent:
            self.problem(*self.integer_problem())
        return None

    def integer_problem(self) -> tuple[str, str]:
        """What is there where an integer is expected, and how to write the integer."""
        return f"must be an integer, got {self.shown}", self._integer_fix()

    def _integer_fix(self) -> str:
        text = str(self.value).strip()
        is_quoted = isinstance(self.value, str) and re.fullmatch("0|[1-9][0-9]{0,9}", text)
        return f"Write {text}, without quotes." if is_quoted else "Write an integer."

    def flag(self) -> bool:
        if self.value not in (None, True, False):
            self.problem(f"must be true or false, got {_shown(self.value)}", "Write true or false.")
        return self.value is True


def _shown(scalar: object) -> str:
    if isinstance(scalar, bool):
        return str(scalar).lower()
    text = repr(scalar) if isinstance(scalar, str) else str(scalar)
    return text if len(text) <= 40 else text[:37] + "..."
