"""How to write a value of the wrong type: units, commas, variables, lists instead of mappings."""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction
from typing import Any

from penstock.strict_yaml.places import looks_secret

THOUSANDS = re.compile(r"([0-9]+) ?[kK]i?")
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|sec|m|min|h)")
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
SECONDS = {"ms": Fraction(1, 1000)} | {unit: Fraction(count) for unit, count in _UNITS.items()}
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:G|Gi|GB|GiB)")
GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")
LEADING = re.compile(r"([0-9]+) ?[a-zA-Z]+")
VARIABLE = re.compile(r"\$\{?\w+\}?|\$\(\w+\)")
ENTRY = re.compile(r"([\w.-]+)(?::| ?= ?)(\S.*)")
NO_VARIABLES = "Write the value; variables are not replaced in this file."


def number_fix(field: str, text: str, is_integer: bool) -> str:
    """The fix for a text where a number is expected; empty if nothing is recognized."""
    if VARIABLE.fullmatch(text):
        return NO_VARIABLES
    if thousands := THOUSANDS.fullmatch(text):
        number = int(thousands[1])
        return f"Write {number * 1024} ({number} × 1024) or {number * 1000}."
    if GROUPED.fullmatch(text):
        return f"Write {text.replace(',', '')}."
    is_time = field.endswith(("_s", "_ms"))
    if is_time and (duration := DURATION.fullmatch(text)):
        return _duration_fix(field, text, Fraction(duration[1]) * SECONDS[duration[2]], is_integer)
    if field.endswith("_gib") and (size := SIZE.fullmatch(text)):
        return f"Write {size[1]}; the unit is GiB."
    if leading := LEADING.fullmatch(text):
        return f"Write the number alone, such as {leading[1]}."
    return ""


def _duration_fix(field: str, text: str, seconds: Fraction, is_integer: bool) -> str:
    unit, words = (1000, "milliseconds") if field.endswith("_ms") else (1, "seconds")
    number = float(seconds * unit)
    if number.is_integer():
        return f"Write {int(number)}; the unit is {words}."
    if is_integer:
        return f"Write an integer, at least 1: the unit is {words}, and {text} is {number:g}."
    return f"Write {number:g}; the unit is {words}."


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
