"""Scalars as Kubernetes' YAML 1.1 parser reads them, where PyYAML reads some differently.

Examples are `y`, `1e3`, `0o17` and `12:30`. What the cluster would do with a manifest counts.
"""

from __future__ import annotations

import re
from functools import lru_cache

import yaml

TAG = "tag:yaml.org,2002:"
MERGE = TAG + "merge"
_YES_NO = re.compile(r"[yYnN]")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
_OCTAL = re.compile(r"[-+]?0o[0-7]+")
MOST_BITS = 1024
_RESOLVER = yaml.resolver.Resolver()


class UnknownTagError(ValueError):
    """A tag that Kubernetes does not know; the message is the tag."""


Scalar = str | bool | int | float | None


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
