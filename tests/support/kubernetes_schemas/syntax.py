"""The syntax of Kubernetes names, labels and quantities, for `crd` and `builtin`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

Problem = tuple[str, str]  # (place, message)

_LABEL_1123 = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
LABEL_1123 = re.compile(_LABEL_1123)
LABEL_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(rf"{_LABEL_1123}(?:\.{_LABEL_1123})*")
QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
PORT_NAME = re.compile(r"(?=[-0-9]*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*")  # one letter, no two dashes
PATH_SEGMENT = re.compile(r"(?!\.\.?$)[^/%]+")
PLAIN_KEY = re.compile(r"[\w-]+")
QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?"
)
POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
ANNOTATIONS_BYTES = 256 * 1024  # an API server's limit per object


def under(place: str, *keys: str | int) -> str:
    """`spec` and `a` as `spec.a`; indices, and keys with dots or slashes, in brackets."""
    for key in keys:
        if isinstance(key, int) or not PLAIN_KEY.fullmatch(key):
            place = f"{place}[{key}]"
        else:
            place = f"{place}.{key}" if place else key
    return place


def name_fault(name: object, syntax: re.Pattern[str], longest: int) -> str | None:
    """The problem of a name; None if it is valid."""
    if not isinstance(name, str) or not syntax.fullmatch(name):
        return f"{name!r} does not match {syntax.pattern}"
    if len(name) > longest:
        return f"{name!r} has {len(name)} characters, at most {longest} are allowed"
    return None


def key_fault(key: str) -> str | None:
    """Label and annotation keys: an optional DNS prefix, a slash, at most 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and (fault := name_fault(prefix, SUBDOMAIN, 253)):
        return f"prefix {fault}"
    return name_fault(name, QUALIFIED, 63)


def label_problems(labels: object, place: str) -> Iterator[Problem]:
    if not isinstance(labels, Mapping):
        return
    for key, value in labels.items():
        if fault := key_fault(str(key)):
            yield place, f"label key {fault}"
        # The schema rejects other types; an empty value is valid.
        if isinstance(value, str) and value and (fault := name_fault(value, QUALIFIED, 63)):
            yield place, f"label value {fault}"


def annotation_problems(annotations: object, place: str) -> Iterator[Problem]:
    if not isinstance(annotations, Mapping):
        return
    for key in annotations:
        if fault := key_fault(str(key).lower()):  # only here the prefix may have capitals
            yield place, f"annotation key {fault}"
    if sum(len(str(k)) + len(str(v)) for k, v in annotations.items()) > ANNOTATIONS_BYTES:
        yield place, f"annotations are longer than {ANNOTATIONS_BYTES} bytes together"


def quantity(value: Any) -> Fraction | None:
    """`1.5Gi` or 2 as a number; None if it is not a quantity."""
    if isinstance(value, bool):
        return None
    match = QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    number, suffix = Fraction(match["number"]), match["suffix"] or ""
    if suffix in POWERS_OF_TWO:
        return number * Fraction(2 ** POWERS_OF_TWO[suffix])
    power = POWERS_OF_TEN[suffix] if suffix in POWERS_OF_TEN else int(suffix[1:] or 0)
    return number * (Fraction(10**power) if power >= 0 else Fraction(1, 10**-power))
