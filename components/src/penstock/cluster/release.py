"""What is installed: Helm's records of a release, or what another client applied from the chart.

Read through the Helm SDK, so releases of `helm install` and `penstock apply` are interchangeable.
Argo CD runs `helm template` and applies its output, and a user may do the same with kubectl. Helm
has no record of that, but the API server keeps what each client applied.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
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
    grant,
)
from penstock.cluster.compare import without_secrets
from penstock.cluster.diff import Diff, diff
from penstock.cluster.generations import ROLLOUT
from penstock.cluster.ownership import applied
from penstock.cluster.workloads import (
    INSTANCE,
    NAME,
    WORKLOAD_KINDS,
    WORKLOAD_VERSIONS,
    Object,
    annotations_of,
    key_of,
    labels_of,
    mounted_config_maps,
    named,
)
from penstock.errors import ClusterError, Problem
from penstock.files import page, write_file
from penstock.helm import HelmError, HelmErrorKind, ReleaseTarget
from penstock.strict_yaml.loader import SafeLoader

T = TypeVar("T")
RELEASE = "meta.helm.sh/release-name"
CHART = "penstock"
# The label on Helm's record of a revision that says how its rollout ended. Helm copies the labels
# to the next record, so the value begins with the revision that it is about: `3.ready`.
OUTCOME = "penstock/outcome"
READY, NOT_READY = "ready", "not-ready"
# Helm's message about an object of the release whose CRD was removed.
NO_KIND = re.compile(r'no matches for kind "(?P<kind>[^"]*)" in version "(?P<version>[^"]*)"')


def release_error(target: ReleaseTarget, message: str, fix: str = "") -> ClusterError:
    """The error of a release."""
    return ClusterError(message, place=f"release {target}", fix=fix)


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
    # The change from the previous revision; None for the first one, and if Helm no longer stores
    # the previous one.
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
        raise release_error(
            target,
            f"{which}was installed from the chart {record['chart_name']}, not {CHART}",
            fix if revision else "Name another release with --release.",
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
        raise release_error(
            target,
            "is not installed with Helm",
            "Install it with `penstock apply`, or select another release with --release and "
            "--namespace. If another tool installed it, such as Argo CD, change it there.",
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
    """What Helm sets on every object of the release, and by which it knows its own."""
    return {RELEASE: target.name, "meta.helm.sh/release-namespace": target.namespace}


def chart_labels(target: ReleaseTarget) -> str:
    """The selector of the objects of the release."""
    return f"{NAME}={CHART},{INSTANCE}={target.name}"


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
    about = named("Secret", name)
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
                "another client is writing this release; your change was not applied",
                place=f"release {target}",
                fix="Wait for it, review `penstock diff`, and run the command again.",
            ) from None
        text = _readable(without_secrets(str(error)))
        message, place = f"cannot {purpose}: {text}", f"release {target}"
        fix = _fix_of(text)
        if error.kind is HelmErrorKind.FORBIDDEN:
            fix = fix or grant(error.right)
            raise ForbiddenError(message, place=place, fix=fix) from None
        error_class = UnavailableError if error.is_transient else ClusterError
        raise error_class(Problem(place=place, message=message, fix=fix)) from None


def _readable(text: str) -> str:
    """Helm's message for a kind that the cluster does not have, as penstock states it elsewhere."""
    match = NO_KIND.search(text)
    return f"the cluster has no kind {match['kind']} ({match['version']})" if match else text


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


def read_installed(target: ReleaseTarget, api: Api, after: Iterable[Object] = ()) -> Release | None:
    """None if nothing is installed. ``after``: objects of the graph, which may exist already.

    Raises ClusterError.
    """
    return read_release(target) or _read_unrecorded(target, api, after)


def require_installed(target: ReleaseTarget, api: Api) -> Release:
    """Raises ClusterError if nothing is installed, or the namespace does not exist."""
    installed = read_installed(target, api)
    if installed is None and not _has_namespace(api):
        place, message = f"namespace {target.namespace}", "does not exist"
        fix = "Select another one with --namespace, or another cluster with --context."
        raise ClusterError(message, place=place, fix=fix)
    return installed or require_release(target)


def _has_namespace(api: Api) -> bool:
    with contextlib.suppress(ForbiddenError):
        return api.served(f"/api/v1/namespaces/{api.namespace}") is not None
    return True


def foreign(target: ReleaseTarget, api: Api, new: Iterable[Object]) -> Iterator[Problem]:
    """Objects that exist under the names of ``new``, which the release does not have yet, and are
    not the graph's: Helm refuses them in the middle of its write."""
    for live in existing(api, new):
        if not _belongs_to(target, live):
            owner = annotations_of(live).get(RELEASE) or labels_of(live).get(INSTANCE)
            yield Problem(
                place=f"{live['kind']} {target.namespace}/{live['metadata']['name']}",
                message=f"exists already and belongs to {owner or 'something else'}, not to "
                f"{target.name}",
                fix="Rename or delete it, or select another name with --release.",
            )


def _belongs_to(target: ReleaseTarget, live: Object) -> bool:
    """Whether the labels of the chart name the release, and Helm's annotations no other one."""
    labels, expected = labels_of(live), helm_annotations(target)
    annotated = {k: v for k, v in annotations_of(live).items() if k in expected}
    is_of_chart = (labels.get(NAME), labels.get(INSTANCE)) == (CHART, target.name)
    return is_of_chart and annotated.items() <= expected.items()


def _read_unrecorded(target: ReleaseTarget, api: Api, after: Iterable[Object]) -> Release | None:
    """The graph's objects as they were applied, if one of them owns pods.

    Helm's annotations decide nothing: they stay if its records are deleted, and are set first by an
    adoption, which can fail afterwards.
    """
    workloads = _workloads(target, api)
    files = map(config_map, mounted_config_maps(workloads))
    rest = (o for o in existing(api, (*files, *after)) if _belongs_to(target, o))
    live = {key_of(o): o for o in (*workloads, *rest)}
    parts = [(o["kind"], *applied(o)) for o in live.values()]
    clients = [client for kind, client, _ in parts if kind in WORKLOAD_KINDS]
    if not clients:  # nothing, or the ConfigMaps that Helm keeps
        return None
    status = f"applied by {clients[0].name} without a record of Helm"
    revision = Revision(number=0, status=status, at=clients[0].at)
    return Release(
        revision=revision, manifest=yaml.safe_dump_all([manifest for _, _, manifest in parts])
    )


def _workloads(target: ReleaseTarget, api: Api) -> list[Object]:
    """The objects that own pods and have the chart's labels, without what controllers created: the
    operator copies the labels to it."""
    listed: list[Object] = []
    for kind, version in WORKLOAD_VERSIONS.items():
        with contextlib.suppress(ForbiddenError):
            listed += api.list(kind, chart_labels(target), version=version)
    absent = ("ownerReferences", "deletionTimestamp")
    return [o for o in listed if not any(o["metadata"].get(field) for field in absent)]


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", **named("ConfigMap", name)}


def existing(api: Api, manifests: Iterable[Object]) -> Iterator[Object]:
    """The live objects of the manifests, without those that the user may not read."""
    for manifest in manifests:
        with contextlib.suppress(ForbiddenError):
            if (live := api.get(manifest)) is not None:
                yield live


@contextmanager
def stored_chart(api: Api, target: ReleaseTarget, revision: int) -> Iterator[tuple[Path, Any]]:
    """The revision's chart in a folder that exists within the block, and its values, from Helm's
    record. It may be another chart than the installed penstock's.

    Raises ClusterError if the record cannot be read.
    """
    name = record_name(target, revision)
    secret = api.get({"apiVersion": "v1", **named("Secret", name)})
    if secret is None:
        message = f"Helm's record of revision {revision} is not a Secret of this namespace"
        fix = "Use Helm's default storage, Secrets: unset HELM_DRIVER."
        raise release_error(target, message, fix)
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    record = json.loads(gzip.decompress(packed))
    chart = record["chart"]
    with TemporaryDirectory(prefix="penstock-chart-") as folder:
        root = Path(folder) / "chart"
        root.mkdir()
        write_file(root / "Chart.yaml", yaml.safe_dump(chart["metadata"]))
        write_file(root / "values.yaml", yaml.safe_dump(chart.get("values") or {}))
        if schema := chart.get("schema"):
            write_file(root / "values.schema.json", base64.b64decode(schema))
        for file in (*(chart.get("templates") or ()), *(chart.get("files") or ())):
            _write(root, str(file["name"]), base64.b64decode(file["data"]))
        yield root, record.get("config") or {}


def _write(root: Path, name: str, content: bytes) -> None:
    """Raises ClusterError for a name outside the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        message = f"the chart in Helm's record has a file outside its folder: {name}"
        raise ClusterError(message)
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, content)
