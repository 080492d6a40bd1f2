"""Plain (unquoted) scalars: only those that every YAML dialect reads alike are accepted.

Helm reads with goyaml, editors and engines with YAML 1.1 or 1.2 libraries. If one of them read
1000 and another "1e3", penstock would check another value than Helm installs.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import yaml

from penstock.helm import HelmError, parse_values
from penstock.strict_yaml.loader import load

# Helm stores numbers as float64, which changes some integers from here on.
TOO_LARGE = 2**53
LONGEST_INTEGER = 20
LONGEST_SHOWN = 40

_CONSTANTS: dict[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+][0-9]+)?|\.[0-9]+")

# What at least one dialect does not read as a string; underscores are removed beforehand.
_AMBIGUOUS = re.compile(
    r"""
    y|n|yes|no|on|off|true|false|null             # in any case: yES is a typo, not a name
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
class ScalarProblem:
    """Why a scalar is refused, and how to write it instead."""

    message: str
    fix: str


def read_scalar(text: str) -> Scalar | ScalarProblem:
    """The value of a plain scalar, or why it must be written in another way."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _DECIMAL.fullmatch(text):
        return float(text) if math.isfinite(float(text)) else _too_large(text)
    if _AMBIGUOUS.fullmatch(text.replace("_", "")):
        return _ambiguous(text)
    return text


def _integer(text: str) -> int | ScalarProblem:
    # The length first: Python does not convert more than 4300 digits.
    if len(text) > LONGEST_INTEGER or abs(int(text)) >= TOO_LARGE:
        return _too_large(text)
    return int(text)


def _too_large(text: str) -> ScalarProblem:
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return ScalarProblem(
        message=f"{shown} is too large: Helm keeps numbers as 64-bit floats, exact below 2^53",
        fix=f'If it is a string, quote it: "{shown}"',
    )


def _ambiguous(text: str) -> ScalarProblem:
    helm, python = _helm_reading(text), _python_reading(text)
    if helm.shown == python:
        message = f"Helm reads {text} as {python}, but not every YAML reader does"
    else:
        message = f"Helm reads {text} as {helm.shown}, PyYAML as {python}"
    quoted = json.dumps(text, ensure_ascii=False)
    if not helm.can_be_written:
        return ScalarProblem(message=message, fix=f"Quote it: {quoted}")
    fix = f"Write {helm.shown}, or if it is a string, quote it: {quoted}"
    return ScalarProblem(message=message, fix=fix)


@dataclass(frozen=True, kw_only=True)
class _HelmReading:
    """What Helm reads."""

    # As JSON, or a description.
    shown: str
    # Whether it is a boolean or a number, which every YAML reader reads alike as JSON writes it.
    can_be_written: bool


def _helm_reading(text: str) -> _HelmReading:
    try:
        value = parse_values(f"k: {text}")["k"]
    except HelmError:
        return _HelmReading(shown="an invalid value", can_be_written=False)
    return _HelmReading(
        shown=json.dumps(value, ensure_ascii=False),
        can_be_written=isinstance(value, (bool, int, float)),
    )


def _python_reading(text: str) -> str:
    try:
        value = load(f"k: {text}")["k"]
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        return "a date"
    except (yaml.YAMLError, ValueError):
        return "an invalid value"
