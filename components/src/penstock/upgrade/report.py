"""An upgrade as text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


def lines(upgrade: Upgrade) -> Iterator[str]:
    yield f"upgrade of {upgrade.source}: Dynamo {upgrade.old} → {upgrade.new}"
    yield ""
    yield "order on a cluster:"
    for number, step in enumerate(upgrade.steps, 1):
        yield f"  {number}. {step.title}"
        yield from (f"     {action}" for action in step.actions)
    yield from _section("version skew:", upgrade.skew)
    yield from _section(
        "flags and fields:", (_change(c, upgrade) for c in upgrade.changes), "no change"
    )
    yield from _section("restarts:", upgrade.restarts)
    yield from _section("notes:", upgrade.notes)
    yield ""
    yield from diff(upgrade)


def diff(upgrade: Upgrade) -> Iterator[str]:
    """The graph's change, as a unified diff."""
    yield from difflib.unified_diff(
        upgrade.before.splitlines(),
        upgrade.after.splitlines(),
        upgrade.source,
        f"{upgrade.source} for Dynamo {upgrade.new}",
        lineterm="",
        n=2,
    )


def _section(title: str, entries: Iterable[str], empty: str = "") -> Iterator[str]:
    entry_lines = [f"  {line}" for line in entries]
    if entry_lines or empty:
        yield ""
        yield title
        yield from entry_lines or [f"  {empty}"]


def _change(change: Change, upgrade: Upgrade) -> str:
    where = f"{upgrade.source}:{change.line}" if change.line else upgrade.source
    return f"{where} {change.place}: {change.text}"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A flag, a variable or a field of the graph that the upgrade concerns."""

    # Path in the graph, such as `frontend.args.2` or `router.temperature`.
    place: str
    line: int | None
    # What changes, and what is done or must be done.
    text: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to do on a cluster, in order."""

    title: str
    actions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """The upgrade of one graph file."""

    source: str
    old: str
    new: str
    # The text of the graph, before and after.
    before: str
    after: str
    needs_operator: bool
    steps: tuple[Step, ...]
    # Which versions may run together during the upgrade.
    skew: tuple[str, ...]
    changes: tuple[Change, ...]
    restarts: tuple[str, ...]
    notes: tuple[str, ...] = ()
