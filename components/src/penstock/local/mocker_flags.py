"""The arguments of a graph's own mockers on this machine; `adapt` calls it.

A mocker can take its step times from files of its image, or from AISimulate. Without them it exits
at startup; without these flags it computes step times with its own formulas.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.engines.flags import flag_table
from penstock.manifests.deployment import Launch
from penstock.manifests.flags import by_flag

MODULE = "dynamo.mocker"
FILE_FLAGS = ("planner-profile-data", "extra-engine-args", "response-replay-trace-path")
# Both spellings of the flags that the installed mocker passes to AISimulate.
AISIMULATE = ("ais-", "aic-")

Exists = Callable[[str], bool]


def exists(path: str) -> bool:
    return Path(path).exists()


def local_arguments(
    launch: Launch, arguments: tuple[str, ...], exists: Exists
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments that have an effect here, and one line for each change.

    ``exists``: whether a path exists on this machine.
    """
    kept: list[str] = []
    notes: list[str] = []
    simulated: list[str] = []
    for flag, words in by_flag(arguments):
        name = _name(flag)
        if name.startswith(AISIMULATE):
            simulated.append(flag)
        elif name in FILE_FLAGS and (missing := _missing(launch, words, exists)):
            notes.append(
                f"ignoring {flag}: {missing} is neither in the manifest nor on this machine"
            )
        else:
            kept += words
    if simulated:
        listed = ", ".join(simulated)
        notes.append(f"ignoring {listed}: AISimulate is not installed with this mocker")
    if len(kept) < len(arguments):
        notes.append("the step times are the mocker's own, not those of the graph's GPUs")
    return tuple(kept), tuple(notes)


def _name(flag: str) -> str:
    """The full name of a flag, which may be abbreviated."""
    table = flag_table(MODULE)
    known = table.find(flag) if table and flag else None
    return known.name if known else flag.lstrip("-")


def _missing(launch: Launch, words: list[str], exists: Exists) -> str:
    """The path in the value of a flag, if there is nothing at it; else empty."""
    return next((path for path in _paths(words) if not _is_there(launch, path, exists)), "")


def _paths(words: list[str]) -> Iterator[str]:
    yield from (value for value in (words[0].partition("=")[2], *words[1:]) if value)


def _is_there(launch: Launch, path: str, exists: Exists) -> bool:
    absolute = posixpath.normpath(posixpath.join(launch.cwd or "/", path))
    return absolute in launch.files or exists(absolute)
