"""What an upgrade of a graph to another version of Dynamo consists of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Change:
    """A flag, a variable or a field of the graph that the upgrade concerns."""

    place: str
    """In the graph: `frontend.args.2`, `router.temperature`."""
    line: int | None
    text: str
    """What changes, and what is done or must be done."""


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
    before: str
    after: str
    """The texts of the graph."""
    needs_operator: bool
    steps: tuple[Step, ...]
    skew: tuple[str, ...]
    """Which versions may run together during the upgrade."""
    changes: tuple[Change, ...]
    restarts: tuple[str, ...]
    notes: tuple[str, ...] = ()
