"""Unfilled placeholders: `<your-namespace>`, `${VLLM_IMAGE}`, `{{ .Values.x }}`, `REPLACE_ME`.

Those in a namespace or an image do not change what the rest of the manifest means: `checks` reports
them, and the manifest is read.
"""

from __future__ import annotations

import re

from penstock.manifests.cursor import Cursor

_ANYWHERE = re.compile(
    r"<(your|YOUR|my|MY|replace|REPLACE|insert|INSERT)[-_ ][^<>\n]*>"
    r"|\b(REPLACE|CHANGE|FILL)[-_]?(ME|THIS|IN|WITH_[A-Z_]+)\b"
    r"|\{\{-?\s*(\.[A-Z]|include\b|if\b|range\b|end\b|toYaml\b)[^\n]*?\}\}"
)
_VALUES = re.compile(r"<[A-Za-z][A-Za-z0-9_. -]*>|\$\{[A-Za-z_][^}\n]*\}|\{\{.*?\}\}")
# Text for shells, engines and programs, in which `${VAR}` and `<think>` are no placeholders.
_TEXT_KEYS = frozenset({"command", "args", "env", "envs", "data", "annotations", "eppConfig"})


def find_placeholders(root: Cursor) -> None:
    """Report every unfilled placeholder of a document at its place."""
    _walk(root, in_text=False, seen=set())


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
    cursor.problem(f"{text} is an unfilled placeholder", fix)
