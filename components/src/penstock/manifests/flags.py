"""Flags of an argument list, written `--flag value` or `--flag=value`."""

from __future__ import annotations

from collections.abc import Sequence


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of the last ``flag``, as argparse reads it; None without one."""
    found = None
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif argument.startswith(f"{flag}="):
            found = argument.removeprefix(f"{flag}=")
    return found


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
