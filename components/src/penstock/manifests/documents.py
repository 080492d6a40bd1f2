"""The documents of a manifest, each value with its line; `read` walks them with `Cursor`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.errors import Problem
from penstock.strict_yaml.document import read_documents
from penstock.strict_yaml.kind import Dialect, DocumentKind, RepeatedKeys
from penstock.strict_yaml.limits import MOST_PROBLEMS
from penstock.strict_yaml.nodes import Node

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
    roots, found = read_documents(text, source, MANIFEST)
    problems = ProblemList(found)
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
