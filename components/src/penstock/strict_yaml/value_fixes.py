"""How to write a value of the wrong type: a list instead of a mapping, a number with a unit."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from fractions import Fraction
from typing import Any

from penstock.strict_yaml.places import looks_secret
from penstock.text.numbers import plain_number

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


_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
SECONDS = {"ms": Fraction(1, 1000)} | {unit: Fraction(count) for unit, count in _UNITS.items()}
MULTIPLES = "kmgt"  # of 1024
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-zA-Z]+|%)")
SIZE_UNIT = re.compile(r"([kmgt])(i?b|i)?", re.IGNORECASE)
GROUPED = re.compile(r"[0-9]{1,3}(([, _])[0-9]{3}(\2[0-9]{3})*)(\.[0-9]+)?|[0-9]+(_[0-9]+)+")
DECIMAL_COMMA = re.compile(r"([0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+")
EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?[eE][-+]?[0-9]{1,2}")
RADIX = re.compile(r"0[xX][0-9a-fA-F]{1,12}|0[oO][0-7]{1,12}|0[bB][01]{1,40}")
ONE_NUMBER = re.compile(r"[^0-9]*([0-9]+)[^0-9]*")
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([kmgtp])i?b?", re.IGNORECASE)
VARIABLE = re.compile(r"\$\{?\w+\}?|\$\(\w+\)")
NO_VARIABLES = "Write the value; variables are not replaced in this file."
LONGEST = 40  # characters of a text that is meant as a number
QUOTES = "\"'“”‘’„«» \t"


def number_fix(field: str, text: str, is_integer: bool) -> str:
    """The fix for a text where a number is expected; empty if nothing is recognized."""
    if len(text) > LONGEST:
        return ""
    if VARIABLE.fullmatch(text):
        return NO_VARIABLES
    if (unusual := unusual_character(text)) and (plain := _plain(text)):
        fix = number_fix(field, plain, is_integer) or f"Write {plain}."
        return f"{fix.rstrip('.')}; the text contains {unusual}."
    if (number := _read(text)) is not None:
        return _number_fix(number, is_integer)
    if (quantity := WITH_UNIT.fullmatch(text)) and (fix := _unit_fix(field, quantity, is_integer)):
        return fix
    if single := ONE_NUMBER.fullmatch(text):
        return f"Write the number alone, such as {single[1]}."
    return ""


def quantity_fix(text: str) -> str:
    """The fix for a size that is not written as Kubernetes does; empty if it is no size."""
    size = QUANTITY.fullmatch(text.strip())
    return f'Write "{size[1]}{size[2].upper()}i".' if size else ""


def unusual_character(text: str) -> str:
    """The first character that is not printable ASCII, with its name; empty if there is none."""
    unusual = next((c for c in text if not (c.isascii() and c.isprintable())), None)
    if unusual is None:
        return ""
    name = unicodedata.name(unusual, "a control character").lower()
    return f"U+{ord(unusual):04X} ({name})"


def _plain(text: str) -> str:
    """The text in ASCII, without quotes and characters that are not shown; empty if impossible."""
    plain = "".join(map(_in_ascii, text)).strip()
    return plain if plain.isascii() else ""


def _in_ascii(character: str) -> str:
    """A digit of another script, a full-width character or a minus sign; ² and ½ stay."""
    if character in QUOTES or not character.isprintable():
        return " " if character in QUOTES else ""
    if character == "−":
        return "-"
    if unicodedata.category(character) == "Nd":
        return str(unicodedata.digit(character))
    is_full_width = "\uff01" <= character <= "\uff5e"
    return unicodedata.normalize("NFKC", character) if is_full_width else character


def _read(text: str) -> Fraction | None:
    """A number in a notation that YAML readers do not agree on, or with separators."""
    if RADIX.fullmatch(text):
        return Fraction(int(text, 0))
    if EXPONENT.fullmatch(text) or NUMBER.fullmatch(text):
        return Fraction(text)
    if GROUPED.fullmatch(text):
        return Fraction(re.sub("[, _]", "", text))
    if DECIMAL_COMMA.fullmatch(text):
        return Fraction(text.replace(".", "").replace(",", "."))
    return None


def _number_fix(number: Fraction, is_integer: bool) -> str:
    if is_integer and number.denominator != 1:
        return f"Write an integer: {number.__floor__()} or {number.__ceil__()}."
    return f"Write {_number_text(number)}."


def _unit_fix(field: str, quantity: re.Match[str], is_integer: bool) -> str:
    number, unit = Fraction(quantity[1]), quantity[2]
    size = SIZE_UNIT.fullmatch(unit)
    if field.endswith(("_s", "_ms")) and unit in SECONDS:
        return _duration_fix(field, quantity[0], number * SECONDS[unit], is_integer)
    if field.endswith(("_gib", "_kib")) and size:
        power = MULTIPLES.index(size[1].lower()) - MULTIPLES.index(field[-3])
        value, name = number * Fraction(1024) ** power, f"{field[-3].upper()}iB"
        if is_integer and value.denominator != 1:
            return (
                f"Write an integer: the unit is {name}, and {quantity[0]} is {_number_text(value)}."
            )
        return f"Write {_number_text(value)}; the unit is {name}."
    if unit in ("k", "K", "ki", "Ki", "M", "Mi") and (number * 1000).denominator == 1:
        power, sign = (1, "") if unit[0] in "kK" else (2, "²")
        binary, decimal = number * 1024**power, number * 1000**power
        return (
            f"Write {_number_text(binary)} ({quantity[1]} × 1024{sign}) or {_number_text(decimal)}."
        )
    if unit == "%" and not is_integer:
        return f"Write {_number_text(number / 100)}."
    return "" if is_integer else f"Write the number alone, such as {quantity[1]}."


def _duration_fix(field: str, text: str, seconds: Fraction, is_integer: bool) -> str:
    unit, words = (1000, "milliseconds") if field.endswith("_ms") else (1, "seconds")
    number = seconds * unit
    if number.denominator == 1 or not is_integer:
        return f"Write {_number_text(number)}; the unit is {words}."
    return (
        f"Write an integer, at least 1: the unit is {words}, and {text} is {_number_text(number)}."
    )


def _number_text(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else plain_number(float(number))
