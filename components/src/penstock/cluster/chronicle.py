"""The revisions of a release, each with what it changed."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cluster import words
from penstock.cluster.diff import diff
from penstock.cluster.release import Release, Revision, current, history
from penstock.helm import Target


@dataclass(frozen=True, kw_only=True)
class Entry:
    """``change`` is against the revision before; empty where Helm does not keep that one."""

    revision: Revision
    change: str


def chronicle(target: Target) -> tuple[Entry, ...]:
    """Oldest first. Raises ClusterError."""
    entries = []
    before: Release | None = None
    for revision in history(target):
        release = current(target, revision.number)
        change = "installed" if revision.number == 1 else ""
        if before and release:
            change = words.in_short(diff(before.objects, release.objects))
        entries.append(Entry(revision=revision, change=change))
        before = release
    return tuple(entries)
