"""Which releases of Dynamo have a flag, from a table made of the sources of their wheels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from penstock.engines.flags import load
from penstock.engines.releases import RELEASES

TABLE = "flag_history.json"
# Of the modules that run no engine.
ENTRY_POINTS = "entry_points.json"
# Flags that the sources name although the module exits with an error: the last release before.
LAST = {("dynamo.vllm", "--connector"): "0.9"}


@dataclass(frozen=True, kw_only=True)
class Presence:
    """The releases, such as 1.4, from the first to the last that have a flag."""

    first: str
    last: str


def has_history(module: str) -> bool:
    """Whether the table has the flags of a module."""
    return module in load(TABLE) or module in load(ENTRY_POINTS)


@cache
def presence(module: str, spelling: str) -> Presence | None:
    """Where a module has the flag, or one that begins with it; None if no release has it.

    KeyError without a history. The table may contain too many flags, never too few: absence is
    certain, presence is not.
    """
    known = list(RELEASES)
    flags = load(TABLE).get(module) or load(ENTRY_POINTS)[module]
    positive = f"--{spelling.removeprefix('--no-')}"
    seen = [
        span
        for name, span in flags.items()
        # A name that ends in `-` is the beginning of names that the parser builds.
        if name == positive
        or name.startswith(spelling)
        or (name.endswith("-") and positive.startswith(name))
    ]
    if not seen:
        return None
    if (last := LAST.get((module, spelling))) is not None:
        return Presence(first=seen[0][0], last=last)
    order = known.index
    return Presence(
        first=min((span[0] for span in seen), key=order),
        last=max((span[1] for span in seen), key=order),
    )
