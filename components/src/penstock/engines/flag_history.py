"""Which releases of Dynamo have a flag or can run a module, from tables made of their wheels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from penstock.engines.flags import Flag, FlagTable, flag_table, load
from penstock.engines.releases import DEPLOYED, RELEASES

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
    positive = f"--{spelling.removeprefix('--no-').removeprefix('--')}"
    table = flag_table(module)
    is_parsed = table is None or table.find(spelling) is not None
    seen = [
        span
        for name, span in flags.items()
        # A name that ends in `-` is the beginning of names that the parser builds.
        if name == positive
        or name.startswith(spelling)
        or (name.endswith("-") and positive.startswith(name) and is_parsed)
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


# Packages of the wheel ai-dynamo-runtime, whose history the table does not have.
OF_RUNTIME = ("indexer", "llm", "nixl_connect", "runtime", "select_service", "slot_tracker")


@cache
def packages() -> tuple[str, ...]:
    """The names below `dynamo.` in any release."""
    return tuple(sorted({*OF_RUNTIME, *(m.split(".")[1] for m in load(ENTRY_POINTS)["modules"])}))


@cache
def runnable() -> tuple[str, ...]:
    """The modules that the deployed release, or a later one, can run."""
    order = list(RELEASES).index
    spans = load(ENTRY_POINTS)["modules"].items()
    return tuple(m for m, (_, last) in spans if order(last) >= order(DEPLOYED))


def releases_of(module: str) -> Presence | None:
    """The releases that can run the module; None if no release can."""
    span = load(ENTRY_POINTS)["modules"].get(module)
    return Presence(first=span[0], last=span[1]) if span else None


@cache
def flag_names(module: str) -> FlagTable | None:
    """The flags of a module that runs no engine; which of them take a value is not known."""
    flags = load(ENTRY_POINTS).get(module) if module.startswith("dynamo.") else None
    if flags is None:
        return None
    order = list(RELEASES).index
    known = [name for name, (_, last) in flags.items() if order(last) >= order(DEPLOYED)]
    return FlagTable(
        by_spelling={s: Flag(name=s[2:], spellings=(s,), takes="maybe") for s in known},
        is_loose=False,
    )
