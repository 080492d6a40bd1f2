"""Converters of the values of options: durations, numbers, shares. Their errors are argparse's."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

MOST = 10**9
FASTEST = 10  # simulation speed


def acceptance_rates(text: str) -> tuple[float, ...]:
    from penstock.simulate.acceptance import MOST_TOKENS, PUBLISHED

    if text in PUBLISHED:
        return PUBLISHED[text].rates
    if text.isalpha():
        names = ", ".join(PUBLISHED)
        message = f"{text!r} is neither a list of rates, such as 0.8,0.6,0.5, nor one of {names}"
        raise argparse.ArgumentTypeError(message)
    parts = text.split(",")
    rates = tuple(positive_number(rate) if rate.strip("0.") else 0.0 for rate in parts)
    is_complete = all(any(map(str.isdigit, rate)) for rate in parts)
    if len(rates) > MOST_TOKENS or max(rates) > 1 or not is_complete:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of up to five rates from 0 to 1")
    return rates


def duration_ms(text: str) -> float:
    """Milliseconds of `500ms`, `0.5s` or `30m`; a number without a unit would be ambiguous."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m)", text)
    if not match or not float(match[1]):
        message = f"{text!r} is not a duration above 0 in ms, s or m; write it as 500ms or 30m"
        raise argparse.ArgumentTypeError(message)
    return float(match[1]) * {"ms": 1, "s": 1000, "m": 60_000}[match[2]]


def simulation_speed(text: str) -> float:
    """A factor that a machine can keep up with."""
    speed = positive_number(text)
    if not 0.01 <= speed <= FASTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0.01 and {FASTEST}")
    return speed


def positive_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < MOST:
        message = f"{text!r} is not a number above 0 and below {MOST:,}"
        raise argparse.ArgumentTypeError(message)
    return number


def share(text: str) -> float:
    if text.endswith("%") or positive_number(text) > 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a share above 0 and up to 1; write 95% as 0.95"
        )
    return float(text)


def integer_between(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            message = f"{text!r} is not an integer from {least} to {most}"
            raise argparse.ArgumentTypeError(message)
        return int(text)

    return read


def add_count(
    parser: argparse._ActionsContainer,
    flag: str,
    purpose: str,
    *,
    least: int = 1,
    most: int = 1_000_000,
    default: int | None = None,
) -> None:
    """An option with an integer."""
    convert = integer_between(least, most)
    parser.add_argument(flag, type=convert, default=default, metavar="N", help=purpose)
