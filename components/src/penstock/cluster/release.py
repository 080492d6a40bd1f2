"""Helm's record of a release: what it applied, revision by revision.

Through the Helm SDK, so that a release of `helm install` and one of `penstock apply` are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from penstock import helm
from penstock.cluster.api import UnavailableError
from penstock.cluster.compare import without_secrets
from penstock.cluster.diff import Diff, diff
from penstock.errors import ClusterError, Problem
from penstock.helm import HelmError, ReleaseTarget
from penstock.strict_yaml.loader import SafeLoader

T = TypeVar("T")
# What Go's client and the API server say of a moment that passes.
AWAY = re.compile(
    "unreachable|refused|reset by peer|timeout|timed out|deadline exceeded|EOF|TLS handshake|"
    "too many requests|unable to handle|shutting down|unavailable|broken pipe",
    re.IGNORECASE,
)
DEPLOYED = ("deployed", "superseded")  # revisions that Helm applied as a whole


@dataclass(frozen=True, kw_only=True)
class Revision:
    """``status`` is Helm's word: deployed, superseded, failed, pending-upgrade, uninstalled …"""

    number: int
    status: str
    at: str

    @property
    def is_pending(self) -> bool:
        return self.status.startswith("pending-")


@dataclass(frozen=True, kw_only=True)
class Release:
    """The newest revision, or an older one, with what it applied."""

    revision: Revision
    objects: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One revision of a release and what it changed."""

    revision: Revision
    # Against the revision before; None for the first, and where Helm no longer keeps that one.
    diff: Diff | None


def current(target: ReleaseTarget, revision: int | None = None) -> Release | None:
    """The release as it is now, or was at ``revision``; None where there is none.

    Raises ClusterError, also where the release is another chart's.
    """
    found = told(target, "be read", lambda: helm.release(target, revision))
    if found is None:
        return None
    if found["chart_name"] != "penstock":
        raise ClusterError(
            Problem(
                place=f"release {target}",
                message=f"is of the chart {found['chart_name']}",
                fix="name another release: --release",
            )
        )
    objects = [o for o in yaml.load_all(str(found["manifest"]), SafeLoader) if o]
    return Release(revision=_revision(found), objects=tuple(objects))


def require(target: ReleaseTarget) -> Release:
    """The release as it is now. Raises ClusterError where there is none."""
    found = current(target)
    if found is None:
        raise ClusterError(
            Problem(
                place=f"release {target}",
                message="is not installed",
                fix="install it with `penstock apply`, or name it: --release, --namespace",
            )
        )
    return found


def history(target: ReleaseTarget) -> tuple[Revision, ...]:
    """Oldest first. Raises ClusterError."""
    require(target)
    return tuple(_revision(r) for r in told(target, "be read", lambda: helm.history(target)))


def history_entries(target: ReleaseTarget) -> tuple[HistoryEntry, ...]:
    """Oldest first. Raises ClusterError."""
    entries = []
    previous: Release | None = None
    for revision in history(target):
        release = current(target, revision.number)
        change = diff(previous.objects, release.objects) if previous and release else None
        entries.append(HistoryEntry(revision=revision, diff=change))
        previous = release
    return tuple(entries)


def told(target: ReleaseTarget, what: str, ask: Callable[[], T]) -> T:
    """Helm's answer, or its refusal as a ClusterError: an UnavailableError where it may pass."""
    try:
        return ask()
    except HelmError as error:
        kind = UnavailableError if AWAY.search(str(error)) else ClusterError
        words = without_secrets(str(error))
        raise kind(Problem(place=f"release {target}", message=f"cannot {what}: {words}")) from None


def _revision(found: dict[str, Any]) -> Revision:
    return Revision(
        number=int(found["revision"]),
        status=str(found["status"]),
        at=str(found.get("deployed_at", "")),
    )
