"""How to write a value of the wrong type: lists instead of mappings."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from penstock.strict_yaml.places import looks_secret

ENTRY = re.compile(r"([\w.-]+)(?::| ?= ?)(\S.*)")


def section_fix(value: Any) -> str:
    """The fix for a list or a text where a mapping is expected; empty if nothing is recognized."""
    if isinstance(value, str) and (entry := ENTRY.fullmatch(value)):
        if looks_secret(entry[1]):
            return f"Write a space after `{entry[1]}:`."
        return f"Write `{entry[1]}: {entry[2].strip()}`, with a space after the colon."
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return ""
    if value and all({"name", "value"} == set(item) for item in value):
        return f'Write a mapping, such as `{value[0]["name"]}: "…"`.'  # a value may be a secret
    return "Remove the `- ` before its keys." if len(value) == 1 else ""


def list_fix(value: Any) -> str:
    """The fix for arguments in one text; empty if it is not that."""
    if not isinstance(value, str) or not value.startswith("-") or " " not in value:
        return ""
    try:
        words = shlex.split(value)
    except ValueError:
        return ""
    return f"Write a list of single arguments: {json.dumps(words)}"
