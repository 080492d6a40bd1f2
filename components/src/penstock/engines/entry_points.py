"""The modules of Dynamo that `python -m` runs, by release, from a table made of its wheels."""

from __future__ import annotations

from functools import cache

from penstock.engines.flag_history import ENTRY_POINTS, Presence
from penstock.engines.flags import Flag, FlagTable, load
from penstock.engines.releases import DEPLOYED, RELEASES

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
