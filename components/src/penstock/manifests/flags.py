"""Flags of an argument list, written `--flag value` or `--flag=value`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of the last ``flag``, as argparse reads it; None without one."""
    text = None
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            text = arguments[index + 1]
        elif argument.startswith(f"{flag}="):
            text = argument.removeprefix(f"{flag}=")
    return text


def by_flag(arguments: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the arguments that belong to it, itself first; "" before the first flag."""
    flag, words = "", list[str]()
    for argument in arguments:
        if re.match(r"--\w|-[A-Za-z]", argument):
            if words:
                yield flag, words
            flag, words = argument.partition("=")[0], []
        words.append(argument)
    if words:
        yield flag, words


def without_flags(arguments: Sequence[str], *flags: str) -> tuple[str, ...]:
    """The arguments without these flags and their values."""
    kept: list[str] = []
    is_value = False
    for argument in arguments:
        if is_value:
            is_value = False
        elif argument in flags:
            is_value = True
        elif argument.partition("=")[0] not in flags:
            kept.append(argument)
    return tuple(kept)
