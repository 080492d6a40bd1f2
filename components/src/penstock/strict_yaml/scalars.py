"""Plain (unquoted) scalars: the few spellings every YAML dialect reads alike, and no others.

Helm reads with goyaml, editors and engines with YAML 1.1 or 1.2 libraries. A graph in which one of
them sees 1000 and another "1e3" would be checked as one thing and installed as another.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import yaml

from penstock.helm import HelmError, values_of

# Helm keeps numbers as float64, so a whole number from here on may change on its way through.
TOO_LARGE = 2**53
LONGEST_WHOLE = 20
LONGEST_SHOWN = 40

_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+][0-9]+)?|\.[0-9]+")

# What some dialect takes for something other than a string; underscores are removed beforehand.
_AMBIGUOUS = re.compile(
    r"""
    y|n|yes|no|on|off|true|false|null             # in any case: yES is a slip, not a name
    | [-+]?\.(inf|nan)
    | [-+]?0x[0-9a-f]* | [-+]?0(o[-+]?)?[0-7]+ | [-+]?0b[-+]?[01]*
    | [-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?
    | [-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?            # 12:30:45 is 45045 in base 60
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([t\s].*)?    # a date
    | = | <<
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)

Scalar = str | bool | int | float | None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a scalar is refused, and how to write it."""

    message: str
    fix: str


def read_scalar(text: str) -> Scalar | Refusal:
    """The value of a plain scalar, or why it must be quoted or written otherwise."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return _whole(text)
    if _DECIMAL.fullmatch(text):
        return float(text) if math.isfinite(float(text)) else _too_large(text)
    if _AMBIGUOUS.fullmatch(text.replace("_", "")):
        return _ambiguous(text)
    return text


def _whole(text: str) -> int | Refusal:
    # The length first: Python does not convert more than 4300 digits.
    if len(text) > LONGEST_WHOLE or abs(int(text)) >= TOO_LARGE:
        return _too_large(text)
    return int(text)


def _too_large(text: str) -> Refusal:
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return Refusal(
        message=f"{shown} is too large: Helm keeps numbers as 64-bit floats, exact below 2^53",
        fix=f'if it is a string, quote it: "{shown}"',
    )


def _ambiguous(text: str) -> Refusal:
    helm, python = _helm_reading(text), _python_reading(text)
    if helm == python:
        message = f"{text} is {helm} to Helm, but not to every YAML reader"
    else:
        message = f"{text} is {helm} to Helm and {python} to PyYAML"
    quoted = f"quote it: {json.dumps(text, ensure_ascii=False)}"
    if helm.startswith(('"', "no ", "null")):
        return Refusal(message=message, fix=quoted)
    return Refusal(message=message, fix=f"write {helm}, or if it is a string, {quoted}")


def _helm_reading(text: str) -> str:
    try:
        return json.dumps(values_of(f"k: {text}")["k"], ensure_ascii=False)
    except HelmError:
        return "no valid value"


def _python_reading(text: str) -> str:
    try:
        value = yaml.safe_load(f"k: {text}")["k"]
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return "a date"
    except (yaml.YAMLError, ValueError):
        return "no valid value"
