"""Helm's records of a release: its revisions and the objects each one applied.

Read through the Helm SDK, so releases of `helm install` and `penstock apply` are interchangeable.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import yaml

from penstock import helm
from penstock.cluster.api import Api
from penstock.cluster.api_errors import (
    ANONYMOUS,
    LATER,
    TOO_MANY,
    WITHOUT_CREDENTIALS,
    ForbiddenError,
    UnavailableError,
)
from penstock.cluster.compare import without_secrets
from penstock.cluster.diff import Diff, diff
from penstock.cluster.forbidden import grant
from penstock.cluster.generations import ROLLOUT
from penstock.errors import ClusterError, Problem
from penstock.files import page
from penstock.helm import HelmError, HelmErrorKind, ReleaseTarget
from penstock.strict_yaml.loader import SafeLoader

T = TypeVar("T")
CHART = "penstock"
# The label on Helm's record of a revision that says how its rollout ended. Helm copies the labels
# to the next record, so the value begins with the revision that it is about: `3.ready`.
OUTCOME = "penstock/outcome"
READY, NOT_READY = "ready", "not-ready"
# Helm's message about an object of the release whose CRD was removed.
NO_KIND = re.compile(r'no matches for kind "(?P<kind>[^"]*)" in version "(?P<version>[^"]*)"')


class LockedError(ClusterError):
    """Another client is writing the release."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One revision of a release, or what another client applied without Helm."""

    # 0 without Helm.
    number: int
    # Helm's: deployed, superseded, failed, pending-upgrade, uninstalled, …
    status: str
    # When it was deployed, as Helm formats it.
    at: str
    chart: str = CHART
    # READY or NOT_READY, as a waiting penstock saw it; "" if none did.
    outcome: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"revision {self.number} ({self.status})" if self.is_recorded else self.status

    @property
    def is_recorded(self) -> bool:
        """Whether Helm has a record of it."""
        return self.number > 0

    @property
    def is_deployed(self) -> bool:
        return self.status == "deployed"

    @property
    def was_deployed(self) -> bool:
        """Whether Helm completed it, now or before a later revision replaced it."""
        return self.status in ("deployed", "superseded")

    @property
    def is_pending(self) -> bool:
        return self.status in ("pending-install", "pending-upgrade", "pending-rollback")

    @property
    def is_failed(self) -> bool:
        """Whether the write failed: some of its objects may be on the cluster."""
        return self.status == "failed"

    @property
    def is_uninstalled(self) -> bool:
        return self.status in ("uninstalling", "uninstalled")


@dataclass(frozen=True, kw_only=True)
class Release:
    """One revision with the objects it applied."""

    revision: Revision
    manifest: str
    """YAML documents of the objects."""

    @cached_property
    def objects(self) -> tuple[dict[str, Any], ...]:
        return tuple(o for o in yaml.load_all(self.manifest, SafeLoader) if o)

    @cached_property
    def content(self) -> str:
        """The objects as text, without the mark that makes a revert a new generation."""
        return json.dumps(_without_mark(self.objects), sort_keys=True, default=str)


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """One revision and what it changed."""

    revision: Revision
    # From the previous revision; None for the first, and if Helm no longer stores the previous one.
    diff: Diff | None
    # The earlier revision with the same content that this one restores; None if it restores none.
    reverts_to: int | None = None


def read_release(target: ReleaseTarget, revision: int | None = None) -> Release | None:
    """The newest or the given revision; None if it does not exist.

    Raises ClusterError, also if another chart installed the release.
    """
    record = call_helm(target, "be read", lambda: helm.release(target, revision))
    if record is None:
        return None
    if record["chart_name"] != CHART:
        which = f"revision {revision} " if revision else ""
        fix = "Select a revision of this chart: see `penstock history`."
        raise ClusterError(
            Problem(
                place=f"release {target}",
                message=f"{which}was installed from the chart {record['chart_name']}, not {CHART}",
                fix=fix if revision else "Name another release with --release.",
            )
        )
    return Release(revision=_revision(record), manifest=str(record["manifest"]))


def _without_mark(value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = {k: _without_mark(v) for k, v in value.items() if k != ROLLOUT}
        return {k: v for k, v in inner.items() if v != {}}
    return [_without_mark(v) for v in value] if isinstance(value, list | tuple) else value


def require_release(target: ReleaseTarget) -> Release:
    """The newest revision. Raises ClusterError if the release is not installed."""
    release = read_release(target)
    if release is None:
        raise ClusterError(
            Problem(
                place=f"release {target}",
                message="is not installed with Helm",
                fix="Install it with `penstock apply`, or select another release with --release "
                "and --namespace. If another tool installed it, such as Argo CD, change it there.",
            )
        )
    return release


def revisions(target: ReleaseTarget) -> tuple[Revision, ...]:
    """The revisions that Helm stores, oldest first. Raises ClusterError."""
    require_release(target)
    return tuple(map(_revision, call_helm(target, "be read", lambda: helm.history(target))))


def history(target: ReleaseTarget) -> tuple[HistoryEntry, ...]:
    """The revisions that Helm stores, with their changes, oldest first. Raises ClusterError."""
    entries: list[HistoryEntry] = []
    previous: Release | None = None
    contents: dict[str, int] = {}
    for revision in revisions(target):
        is_ours = revision.chart == CHART
        release = read_release(target, revision.number) if is_ours else None
        change = diff(previous.objects, release.objects) if previous and release else None
        restored = contents.get(release.content) if release and change else None
        is_revert = restored is not None and bool(change and not change.is_empty)
        entries.append(
            HistoryEntry(revision=revision, diff=change, reverts_to=restored if is_revert else None)
        )
        if release:
            contents[release.content] = revision.number
        previous = release
    return tuple(entries)


def helm_annotations(target: ReleaseTarget) -> dict[str, str]:
    """Those that Helm sets on every object of the release, and by which it knows its own."""
    return {
        "meta.helm.sh/release-name": target.name,
        "meta.helm.sh/release-namespace": target.namespace,
    }


def record_name(target: ReleaseTarget, revision: int) -> str:
    """The Secret with Helm's record of the revision."""
    return f"sh.helm.release.v1.{target.name}.v{revision}"


def record_outcome(api: Api, target: ReleaseTarget, revision: int, *, is_ready: bool) -> None:
    """Note at Helm's record whether the rollout of the revision succeeded.

    Without the permission to patch secrets, or Helm's default storage, nothing is noted.
    """
    labels = {OUTCOME: f"{revision}.{READY if is_ready else NOT_READY}"}
    name = record_name(target, revision)
    path = f"/api/v1/namespaces/{target.namespace}/secrets/{name}"
    about = {"kind": "Secret", "metadata": {"name": name}}
    with contextlib.suppress(ClusterError):  # the rollout itself has ended
        api.request("PATCH", path, {"metadata": {"labels": labels}}, about)


def call_helm(target: ReleaseTarget, purpose: str, call: Callable[[], T]) -> T:
    """The result of ``call``. Raises ClusterError: UnavailableError if a retry may succeed,
    LockedError if another client is writing the release.

    ``purpose`` completes "release NAME cannot …", for example "be read".
    """
    try:
        return call()
    except HelmError as error:
        if error.kind is HelmErrorKind.LOCKED:
            raise LockedError(
                Problem(
                    place=f"release {target}",
                    message="another client is writing this release; your change was not applied",
                    fix="Wait for it, review `penstock diff`, and run the command again.",
                )
            ) from None
        text = _readable(without_secrets(str(error)))
        message, place = f"cannot {purpose}: {text}", f"release {target}"
        fix = _fix_of(text)
        if error.kind is HelmErrorKind.FORBIDDEN:
            fix = fix or grant(error.right)
            raise ForbiddenError(Problem(place=place, message=message, fix=fix)) from None
        error_class = UnavailableError if error.is_transient else ClusterError
        raise error_class(Problem(place=place, message=message, fix=fix)) from None


def _readable(text: str) -> str:
    """Helm's message for a kind that the cluster does not have, as penstock states it elsewhere."""
    found = NO_KIND.search(text)
    return f"the cluster has no kind {found['kind']} ({found['version']})" if found else text


def _fix_of(text: str) -> str:
    if ANONYMOUS in text:
        return WITHOUT_CREDENTIALS
    if text.startswith("the cluster has no kind"):
        return f"Install the operator that provides this CRD: see {page('cluster')}."
    return LATER if TOO_MANY.search(text) else ""


def _revision(record: dict[str, Any]) -> Revision:
    number, _, outcome = str((record.get("labels") or {}).get(OUTCOME, "")).partition(".")
    return Revision(
        number=int(record["revision"]),
        outcome=outcome if number == str(record["revision"]) else "",
        status=str(record["status"]),
        at=str(record.get("deployed_at", "")),
        chart=str(record.get("chart_name", CHART)),
    )
