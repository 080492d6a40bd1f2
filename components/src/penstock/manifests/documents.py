"""The documents of a manifest, each value with its line; `read` walks them with `Cursor`."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import Problem
from penstock.strict_yaml.document import read_documents
from penstock.strict_yaml.kind import Dialect, DocumentKind
from penstock.strict_yaml.nodes import Node

MANIFEST = DocumentKind(
    name="a manifest",
    dialect=Dialect.KUBERNETES,
    may_quote_lines=False,  # the file may contain a Secret
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
    problems: list[Problem] = field(default_factory=list)


def parse(text: str, source: str) -> tuple[tuple[Document, ...], list[Problem]]:
    """Every document that is not empty, and the problems of the YAML itself."""
    roots, problems = read_documents(text, source, MANIFEST)
    documents = tuple(
        Document(value=root.value, source=source, node=root, problems=problems)
        for root in roots
        if root.value is not None
    )
    return documents, problems
