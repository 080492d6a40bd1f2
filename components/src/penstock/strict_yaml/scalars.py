"""Plain (unquoted) scalars: those that every dialect reads alike, and what Kubernetes reads.

Helm reads with goyaml, editors and engines with YAML 1.1 or 1.2 libraries. If one of them read
1000 and another "1e3", penstock would check another value than Helm installs.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache

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
    excerpt = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return ScalarProblem(
        message=f"{excerpt} is too large: Helm keeps numbers as 64-bit floats, exact below 2^53",
        fix=f'If it is a string, quote it: "{excerpt}"',
    )


def _ambiguous(text: str) -> ScalarProblem:
    helm, python = _helm_reading(text), _python_reading(text)
    if helm.text == python:
        message = f"Helm reads {text} as {python}, but not every YAML reader does"
    else:
        message = f"Helm reads {text} as {helm.text}, PyYAML as {python}"
    quoted = json.dumps(text, ensure_ascii=False)
    if not helm.can_be_written:
        return ScalarProblem(message=message, fix=f"Quote it: {quoted}")
    fix = f"Write {helm.text}, or if it is a string, quote it: {quoted}"
    return ScalarProblem(message=message, fix=fix)


@dataclass(frozen=True, kw_only=True)
class _HelmReading:
    """What Helm reads."""

    # As JSON, or a description.
    text: str
    # Whether it is a boolean or a number, which every YAML reader reads alike as JSON writes it.
    can_be_written: bool


def _helm_reading(text: str) -> _HelmReading:
    try:
        value = parse_values(f"k: {text}")["k"]
    except HelmError:
        return _HelmReading(text="an invalid value", can_be_written=False)
    return _HelmReading(
        text=json.dumps(value, ensure_ascii=False),
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


# Kubernetes has a YAML 1.1 parser that reads `y`, `1e3`, `0o17` and `12:30` unlike PyYAML. Of a
# manifest, what the cluster would do with it counts.
TAG = "tag:yaml.org,2002:"
MERGE = TAG + "merge"
_YES_NO = re.compile(r"[yYnN]")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
_OCTAL = re.compile(r"[-+]?0o[0-7]+")
MOST_BITS = 1024
_RESOLVER = yaml.resolver.Resolver()


class UnknownTagError(ValueError):
    """A tag that Kubernetes does not know; the message is the tag."""


def tag_of(event: yaml.ScalarEvent) -> str:
    """The tag that the text gives, or else the one that PyYAML resolves."""
    if event.tag is not None and event.tag != "!":
        return str(event.tag)
    return _resolved(event.value, event.implicit)


@lru_cache(maxsize=4096)  # a manifest has few distinct keys and values
def _resolved(value: str, implicit: tuple[bool, bool]) -> str:
    return str(_RESOLVER.resolve(yaml.ScalarNode, value, implicit))  # type: ignore[no-untyped-call]


def kubernetes_scalar(event: yaml.ScalarEvent) -> Scalar:
    """The value that Kubernetes reads; UnknownTagError for a tag that it does not know."""
    kind = tag_of(event).removeprefix(TAG)
    if kind in ("null", "bool", "int", "float"):
        return _typed(event.value, kind)
    if kind in ("str", "timestamp", "binary", "value", "merge"):
        # The style of a plain scalar is None, or "" from libyaml.
        return str(event.value) if event.style else _plain(event.value)
    raise UnknownTagError(tag_of(event))


def _typed(text: str, kind: str) -> Scalar:
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on")
    if ":" in text:
        return text  # base 60 in PyYAML, a string in Kubernetes
    try:
        return _int(text) if kind == "int" else _float(text)
    except ValueError:
        return text


def _int(text: str) -> int:
    value = _any_int(text.replace("_", "").lower())
    if value.bit_length() > MOST_BITS:
        raise ValueError("larger than any float: a string to Kubernetes")
    return value


def _any_int(digits: str) -> int:
    sign, bare = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
    if len(bare) > 1 and bare[0] == "0" and bare[1].isdigit():
        return int(sign + bare, 8)
    return int(sign + bare, 0)


def _float(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _plain(text: str) -> Scalar:
    """A plain scalar that PyYAML reads as a string."""
    if _YES_NO.fullmatch(text):
        return text in "yY"
    if _FLOAT.fullmatch(text):
        return float(text)
    if _OCTAL.fullmatch(text):
        return int(text.replace("0o", ""), 8)
    return text
