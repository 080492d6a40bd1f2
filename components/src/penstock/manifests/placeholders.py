"""Unfilled placeholders: `<your-namespace>`, `${IMAGE}`, `$name`, `{{ .Values.x }}`, `REPLACE_ME`.

Those in a namespace or an image do not change what the rest of the manifest means: `checks` reports
them, and the manifest is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import Problem, ProblemKind
from penstock.manifests.documents import Cursor

# The host of a value that is an address: `http://<endpoint>:8001`. In a longer text it may be part
# of a comment.
_SCHEMES = ("http", "https", "grpc", "tcp", "nats", "redis")
_HOST = "|".join(rf"(?<=\A{scheme}://)<[A-Za-z][A-Za-z0-9_. -]*>" for scheme in _SCHEMES)
_ANYWHERE = re.compile(
    r"<(your|YOUR|my|MY|replace|REPLACE|insert|INSERT)[-_ ][^<>\n]*>"
    r"|\b(REPLACE|CHANGE|FILL)[-_]?(ME|THIS|IN|WITH_[A-Z_]+)\b"
    r"|\{\{-?\s*(\.[A-Z]|include\b|if\b|range\b|end\b|toYaml\b)[^\n]*?\}\}"
    rf"|{_HOST}"
)
# A lower-case name stands for a value or a part of an image, as in `$ignore` of Dynamo's golden
# files (operator/internal/testing/golden/DESIGN.md); inside of other text it may be anything.
_LOWER = r"\$[a-z][A-Za-z0-9_]+\b(?!\$)"
_VALUES = re.compile(
    r"<[A-Za-z][A-Za-z0-9_. -]*>|\$\{[A-Za-z_][^}\n]*\}|\$[A-Z][A-Z0-9_]+\b|\{\{.*?\}\}"
    rf"|(?:^|(?<=[/:])){_LOWER}"
)
# The same in a line of the file.
_IN_LINE = re.compile(rf"{_VALUES.pattern}|(?<=[\s\"']){_LOWER}")
# Text for shells, engines and programs, in which `${VAR}` and `<think>` are no placeholders.
_TEXT_KEYS = frozenset({"command", "args", "env", "envs", "data", "annotations", "eppConfig"})
# What a placeholder may stand for; two of each, as `filled` says.
_EXAMPLES = ("example-a", "example-b")
_IMAGES = ("registry.example/a:1.6.1", "registry.example/b:1.5.1")
_IMAGE = re.compile(
    r"(\bimage\s*:\s*[\"']?)(?:<[^<>\n]*>|\$\{[^}\n]*\}|\$[A-Za-z][A-Za-z0-9_]+|\{\{.*?\}\})([\"']?\s*(?:#.*)?)$"
)
TURNS = len(_EXAMPLES)
UNFILLED = frozenset({ProblemKind.PLACEHOLDER, ProblemKind.TEMPLATE})


def filled(text: str, lines: Iterable[int], turn: int) -> str:
    """The text with the placeholders of some lines (from 1) filled, below TURNS in other ways.

    What a manifest shows with all of them does not depend on the placeholders.
    """
    result = text.splitlines(keepends=True)
    for line in lines:
        content = result[line - 1].rstrip("\r\n")
        end = result[line - 1][len(content) :]
        content = _IMAGE.sub(rf"\g<1>{_IMAGES[turn]}\g<2>", content)
        for pattern in (_ANYWHERE, _IN_LINE):
            content = pattern.sub(_EXAMPLES[turn], content)
        result[line - 1] = content + end
    return "".join(result)


@dataclass(frozen=True, kw_only=True)
class Unfilled:
    """A value with a placeholder."""

    cursor: Cursor
    # The placeholder alone.
    text: str

    @property
    def is_read(self) -> bool:
        """Whether the manifest can be read with it."""
        path = self.cursor.path
        return path[-1] == "image" or path == ("metadata", "namespace")


def kind_of(text: str) -> ProblemKind:
    """Whether a person replaces the placeholder or a program such as envsubst or Helm fills it."""
    return ProblemKind.TEMPLATE if text.startswith(("$", "{{")) else ProblemKind.PLACEHOLDER


def report_placeholders(root: Cursor) -> None:
    """Report every placeholder at whose place the manifest needs a value to be read."""
    for value in unfilled(root):
        if value.is_read:
            continue
        kind = kind_of(value.text)
        is_template = kind is ProblemKind.TEMPLATE
        fix = "Render the template first." if is_template else "Replace it with a value."
        value.cursor.problem(f"{value.text} is an unfilled placeholder", fix, kind)


def without_consequences(problems: Sequence[Problem]) -> list[Problem]:
    """Without further problems of the values that are placeholders, such as a wrong type."""
    places = {problem.place for problem in problems if problem.kind in UNFILLED}
    return [p for p in problems if p.place not in places or p.kind in UNFILLED]


def unfilled(root: Cursor) -> Iterator[Unfilled]:
    """The values of a document with a placeholder; an aliased value once, at its anchor."""
    return _walk(root, in_text=False, seen=set())


def _walk(cursor: Cursor, *, in_text: bool, seen: set[int]) -> Iterator[Unfilled]:
    node = cursor.value
    if isinstance(node, str):
        for text in placeholders(node, in_text=in_text):
            yield Unfilled(cursor=cursor, text=text)
    elif isinstance(node, (dict, list)) and id(node) not in seen:
        seen.add(id(node))
        children = cursor.items() if isinstance(node, list) else (c for _, c in cursor.entries())
        for child in children:
            yield from _walk(child, in_text=in_text or child.path[-1] in _TEXT_KEYS, seen=seen)


def placeholder(value: str, *, in_text: bool = False) -> str | None:
    """The first placeholder in a value; ``in_text``: in text for shells, engines and programs."""
    return next(iter(placeholders(value, in_text=in_text)), None)


def placeholders(value: str, *, in_text: bool = False) -> list[str]:
    """All placeholders in a value."""
    patterns = (_ANYWHERE,) if in_text else (_ANYWHERE, _VALUES)
    matches = ([match.group() for match in pattern.finditer(value)] for pattern in patterns)
    return next((texts for texts in matches if texts), [])
