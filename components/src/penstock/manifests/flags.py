"""Reading and dropping single flags of an argument list, `--flag value` or `--flag=value`."""

from __future__ import annotations

from collections.abc import Sequence


def value(arguments: Sequence[str], flag: str) -> str | None:
    """The last value given for ``flag``; None when it is not there."""
    found = None
    for at, part in enumerate(arguments):
        if part == flag and at + 1 < len(arguments):
            found = arguments[at + 1]
        elif part.startswith(f"{flag}="):
            found = part.removeprefix(f"{flag}=")
    return found


def without(arguments: Sequence[str], *flags: str) -> tuple[str, ...]:
    """The arguments but for these flags and their values."""
    kept: list[str] = []
    skip = False
    for part in arguments:
        if skip:
            skip = False
        elif part in flags:
            skip = True
        elif not part.startswith(tuple(f"{flag}=" for flag in flags)):
            kept.append(part)
    return tuple(kept)
