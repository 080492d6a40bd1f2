"""Unfilled placeholders: `<your-namespace>`, `${VLLM_IMAGE}`, `{{ .Values.x }}`, `REPLACE_ME`.

Those in a namespace or an image do not change what the rest of the manifest means: `checks` reports
them, and the manifest is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from penstock.errors import Problem
from penstock.manifests.cursor import Cursor

_ANYWHERE = re.compile(
    r"<(your|YOUR|my|MY|replace|REPLACE|insert|INSERT)[-_ ][^<>\n]*>"
    r"|\b(REPLACE|CHANGE|FILL)[-_]?(ME|THIS|IN|WITH_[A-Z_]+)\b"
    r"|\{\{-?\s*(\.[A-Z]|include\b|if\b|range\b|end\b|toYaml\b)[^\n]*?\}\}"
)
_VALUES = re.compile(r"<[A-Za-z][A-Za-z0-9_. -]*>|\$\{[A-Za-z_][^}\n]*\}|\{\{.*?\}\}")
# Text for shells, engines and programs, in which `${VAR}` and `<think>` are no placeholders.
_TEXT_KEYS = frozenset({"command", "args", "env", "envs", "data", "annotations", "eppConfig"})
# What a placeholder may stand for; two of each, as `filled` says.
_EXAMPLES = ("example-a", "example-b")
_IMAGES = ("registry.example/a:1.6.1", "registry.example/b:1.5.1")
_IMAGE = re.compile(
    r"(\bimage\s*:\s*[\"']?)(?:<[^<>\n]*>|\$\{[^}\n]*\}|\{\{.*?\}\})([\"']?\s*(?:#.*)?)$"
)
TURNS = len(_EXAMPLES)
_UNFILLED = "is an unfilled placeholder"


def filled(text: str, lines: Iterable[int], turn: int) -> str:
    """The text with the placeholders of some lines (from 1) filled, below TURNS in other ways.

    What a manifest shows with all of them does not depend on the placeholders.
    """
    result = text.splitlines(keepends=True)
    for line in lines:
        content = result[line - 1].rstrip("\r\n")
        end = result[line - 1][len(content) :]
        content = _IMAGE.sub(rf"\g<1>{_IMAGES[turn]}\g<2>", content)
        for pattern in (_ANYWHERE, _VALUES):
            content = pattern.sub(_EXAMPLES[turn], content)
        result[line - 1] = content + end
    return "".join(result)


def find_placeholders(root: Cursor) -> None:
    """Report every unfilled placeholder of a document at its place."""
    _walk(root, in_text=False, seen=set())


def without_consequences(problems: Sequence[Problem]) -> list[Problem]:
    """Without further problems of the values that are placeholders, such as a wrong type."""
    unfilled = {one.place for one in problems if one.message.endswith(_UNFILLED)}
    return [p for p in problems if p.place not in unfilled or p.message.endswith(_UNFILLED)]


def _walk(cursor: Cursor, *, in_text: bool, seen: set[int]) -> None:
    value = cursor.value
    if isinstance(value, str):
        _check(cursor, value, in_text)
    elif isinstance(value, (dict, list)) and id(value) not in seen:
        seen.add(id(value))  # an aliased value is reported once, at its anchor
        children = cursor.items() if isinstance(value, list) else (c for _, c in cursor.entries())
        for child in children:
            _walk(child, in_text=in_text or child.path[-1] in _TEXT_KEYS, seen=seen)


def placeholder(value: str, *, in_text: bool = False) -> str | None:
    """The first placeholder in a value; ``in_text``: in text for shells, engines and programs."""
    found = _ANYWHERE.search(value) or (None if in_text else _VALUES.search(value))
    return found.group() if found else None


def _check(cursor: Cursor, value: str, in_text: bool) -> None:
    text = placeholder(value, in_text=in_text)
    if text is None or cursor.path[-1] == "image" or cursor.path == ("metadata", "namespace"):
        return
    is_template = text.startswith(("${", "{{"))
    fix = "Render the template first." if is_template else "Replace it with a value."
    cursor.problem(f"{text} {_UNFILLED}", fix)
