"""A change of a release: computed, then written through Helm: install, upgrade or roll back.

Helm uses server-side apply without force, so it fails on a field that kubectl or an autoscaler has
set to another value. Their ownership of these fields is removed first, which changes no value: the
cluster changes only under Helm's own lock, the record of the new revision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from penstock import helm
from penstock.cluster import generations, helm_writer, report
from penstock.cluster.api import Api
from penstock.cluster.api_errors import grant
from penstock.cluster.current_state import (
    CurrentState,
    DryRuns,
    kv_tokens,
    read_cluster_state,
    read_file_state,
    read_update,
)
from penstock.cluster.diff import (
    Action,
    Diff,
    Drift,
    RejectedChange,
    diff,
    drift,
    rejected_replica_changes,
)
from penstock.cluster.generations import RollingUpdate, Transition
from penstock.cluster.ownership import REPLICAS_MANAGER, replica_managers
from penstock.cluster.release import (
    CHART,
    NOT_READY,
    READY,
    LockedError,
    Release,
    Revision,
    call_helm,
    helm_annotations,
    read_installed,
    read_release,
    release_error,
    require_release,
    revisions,
    stored_chart,
)
from penstock.cluster.workloads import (
    DGD,
    PLURALS,
    WORKLOAD_KINDS,
    Object,
    annotations_of,
    labels_of,
    workloads,
)
from penstock.errors import ClusterError, Problem
from penstock.graph.load import LoadedGraph, parse_graph
from penstock.helm import ReleaseTarget
from penstock.manifests.render import chart_path, render
from penstock.manifests.source import render_graph


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one release."""

    target: ReleaseTarget
    # The chart's values, which render to ``after``.
    values: Mapping[str, Any]
    before: CurrentState
    after: tuple[Object, ...]
    diff: Diff
    # GPUs of the graph's nodes (`hardware.gpus_per_node` × `hardware.nodes`); None if not set.
    available_gpus: int | None
    # How the change meets a rolling update; None if none is in progress.
    transition: Transition | None = None

    def has_scaled(self, api: Api) -> bool:
        """Whether a pool has its new number on the cluster by now. Raises ClusterError."""
        new = {
            c.name: c.replicas[1] for c in self.diff.components if c.replicas[0] != c.replicas[1]
        }
        declared = (o for o in self.after if o["kind"] in WORKLOAD_KINDS)
        live = workloads(api.existing(declared))
        return any(name in live and live[name].replicas == count for name, count in new.items())

    @property
    def is_empty(self) -> bool:
        """Whether the cluster already matches the graph."""
        has_drift = any(entry.is_corrected_by_apply for entry in self.before.drift)
        refused = self.before.rejected or self.before.foreign
        return self.diff.is_empty and not has_drift and not refused

    @property
    def is_applied(self) -> bool:
        """Whether the cluster matches the graph and Helm completed the revision."""
        revision = self.before.revision
        return self.is_empty and revision is not None and revision.is_deployed

    @property
    def failed_write(self) -> Revision | None:
        """The last revision, if Helm recorded it as failed and the cluster matches the graph."""
        revision = self.before.revision
        return revision if self.is_empty and revision and revision.is_failed else None

    def require_possible(self, *, adopts: bool = False) -> None:
        """Raises ClusterError with every reason why the change would be rejected.

        ``adopts``: the user wants what another tool installed to become Helm's.
        """
        if self.before.installer and not adopts:
            raise _not_of_helm(self.target, self.before.installer)
        revision = self.before.revision
        if revision and (revision.is_pending or revision.is_uninstalled):
            raise _not_upgradable(self.target, revision)
        place = f"release {self.target}"
        if self.diff.rejected:
            raise _rejected(self.target, self.diff.rejected)
        rejected = [Problem(place=place, message=reason) for reason in self.before.rejected]
        if problems := (*self.before.foreign, *rejected, *self.before.unchecked):
            raise ClusterError(*problems)

    def lines(self) -> list[str]:
        """The change as `penstock diff` prints it."""
        body = report.as_lines(
            self.diff,
            drift=self.before.drift,
            available_gpus=self.available_gpus,
            kv_tokens=kv_tokens(self.before.objects),
            transition=self.transition,
            manager=self.before.manager,
        )
        if failed := self.failed_write:
            text = f"revision {failed.number} failed: apply writes it again and restarts nothing"
            body = [*(line for line in body if line != report.NO_CHANGES), text]
        if self.before.revision:
            body += [f"chart: {reason}" for reason in report.chart_reasons(self.diff)]
        body += [f"not possible: {problem}" for problem in self.before.foreign]
        body += [f"rejected by the API server: {reason}" for reason in self.before.rejected]
        body += _in_one_line("dry run not possible", "patch", self.before.unchecked)
        body += _in_one_line("pods were not checked", "create", self.before.unchecked_pods)
        body += _in_one_line("drift not checked", "get", self.before.unread)
        title = f"{self.target}, compared with {self.before.description}:"
        return [title, *(f"  {line}" for line in body)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "release": self.target.name,
            **report.as_dict(self.diff, self.before.drift, self.transition),
            "chart_changes": [*report.chart_reasons(self.diff)] if self.before.revision else [],
            "not_possible": list(map(str, self.before.foreign)),
            "rejected_by_server": list(self.before.rejected),
            "not_checked_by_server": list(
                map(str, (*self.before.unchecked, *self.before.unchecked_pods))
            ),
            "repeats_failed_write": self.failed_write is not None,
            "drift_not_checked": list(map(str, self.before.unread)),
        }


def _in_one_line(what: str, verb: str, problems: Sequence[Problem]) -> list[str]:
    """Missing rights, which often are the same for all objects."""
    if len(problems) < 2:
        return [f"{what}: {problem}" for problem in problems]
    kinds = dict.fromkeys(problem.place.partition(" ")[0] for problem in problems)
    plurals = ", ".join(PLURALS[kind] for kind in kinds if kind in PLURALS)
    first = f"{what} for {len(problems)} objects: {problems[0].place}: {problems[0].message}"
    return [f"{first}. Fix: {grant(f'{verb} {plurals}')}"]


def _not_of_helm(target: ReleaseTarget, installer: str) -> ClusterError:
    return release_error(
        target,
        f"was {installer}, whose next sync would undo this change",
        "Change the graph where that tool reads it. To manage it with Helm instead, stop the "
        "tool from writing it, and add --adopt.",
    )


def _rejected(
    target: ReleaseTarget, rejected: Iterable[RejectedChange], about: str = ""
) -> ClusterError:
    place = f"release {target}"
    return ClusterError(
        *(Problem(place=place, message=f"{about}{entry}", fix=entry.fix) for entry in rejected)
    )


def _not_upgradable(target: ReleaseTarget, revision: Revision) -> ClusterError:
    state = f"revision {revision.number} is {revision.status}"
    if not revision.is_pending:
        message = f"{state}, but Helm still keeps its record"
        fix = "Run `penstock uninstall` to delete the record."
    elif revision.number == 1:
        message = f"{state}: the installation is running or was interrupted"
        fix = "Wait for it to finish. If it was interrupted, run `penstock uninstall`."
    else:
        message = f"{state}: another client is upgrading the release, or was interrupted"
        fix = "Wait for it to finish. If it was interrupted, run `penstock rollback`."
    return release_error(target, message, fix)


def against_cluster(
    loaded: LoadedGraph,
    target: ReleaseTarget,
    api: Api,
    require_rights: Callable[[tuple[Object, ...]], None] = lambda _: None,
) -> Change:
    """The change that applying the graph makes. Raises ClusterError, ChartError.

    ``require_rights``: called with the rendered objects before the cluster is read.
    """
    after = render_graph(loaded, target.namespace, name=target.name).objects
    require_rights(after)
    release = read_installed(target, api, after)
    current = release.objects if release else ()
    mark = generations.mark(current)
    generations.require_unmarked(loaded.values, mark)
    if mark:  # to leave it out would restart all workers
        loaded = replace(loaded, values=generations.marked_values(loaded.values, after, mark))
        after = render_graph(loaded, target.namespace, name=target.name).objects
    before = read_cluster_state(target, api, release, after)
    change = _change(loaded, target, before, after)
    if release is None or before.update is None:
        return change
    return _during(change, release, before.update, before.drift)


def _during(
    change: Change, release: Release, update: RollingUpdate, entries: Iterable[Drift]
) -> Change:
    """The change during a rolling update: as a new generation if it must not return at once.

    ``entries``: how the cluster differs from the release.
    """
    transition = _transition(change.target, release, update, entries, change.after)
    change = replace(change, transition=transition)
    if not transition.needs_mark:
        return change
    number = str(release.revision.number + 1)
    values = generations.marked_values(change.values, change.after, number)
    after = render(values, name=change.target.name, namespace=change.target.namespace).objects
    new_diff = diff(change.before.objects, after, change.before.replicas)
    return replace(change, values=values, after=after, diff=new_diff)


def _transition(
    target: ReleaseTarget,
    newest: Release,
    update: RollingUpdate,
    entries: Iterable[Drift],
    after: Iterable[Object],
) -> Transition:
    """How writing ``after`` meets the update. ``entries``: the drift from the newest revision."""
    workers = {w.name for w in workloads(newest.objects).values() if w.is_worker}
    has_drift = any(d.component in workers and d.change.path != "replicas" for d in entries)
    earlier = _earlier_objects(target, newest.revision)
    return generations.transition(update, after, newest.objects, earlier, has_drift=has_drift)


def _earlier_objects(target: ReleaseTarget, newest: Revision) -> Iterator[tuple[Object, ...]]:
    """The objects of each stored revision of this chart before the newest."""
    for revision in revisions(target) if newest.is_recorded else ():
        with contextlib.suppress(ClusterError):  # of another chart
            is_earlier = revision.number < newest.number
            stored = read_release(target, revision.number) if is_earlier else None
            if stored is not None:
                yield stored.objects


def _recheck(change: Change, api: Api, release: Release) -> Change:
    """The change as it must be written now: an update may have begun or progressed since it was
    computed. Raises ClusterError."""
    known = change.transition
    if known is not None and known.needs_mark:
        return change
    update, entries = _read_graph(api, change.target, release)
    return change if update is None else _during(change, release, update, entries)


def _read_graph(
    api: Api, target: ReleaseTarget, release: Release
) -> tuple[RollingUpdate | None, tuple[Drift, ...]]:
    """The rolling update of the release's graph, and how the graph differs from the release.

    Raises ClusterError.
    """
    graphs = [o for o in release.objects if o["kind"] == DGD]
    live = api.existing(graphs)
    api.follow(live)
    expected = DryRuns(api, live).expected(graphs)
    return read_update(api, target, live), drift(graphs, live, expected, api.manager)


def against_file(loaded: LoadedGraph, target: ReleaseTarget, path: Path) -> Change:
    """The change from a graph or manifests at ``path``. Raises as `open_source` does."""
    after = render_graph(loaded, target.namespace, name=target.name).objects
    before = read_file_state(path, target.name, target.namespace)
    return _change(loaded, target, before, after)


def of_replicas(target: ReleaseTarget, api: Api, replicas: Mapping[str, int]) -> Change:
    """The installed release with other numbers of replicas; the graph file is not read.

    Raises ClusterError, also if an autoscaler owns a pool or if anything else would change.
    """
    release = require_release(target)
    autoscaled = [n for n, w in workloads(release.objects).items() if w.scaler is not None]
    if conflicts := [name for name in replicas if name in autoscaled]:
        raise release_error(
            target,
            f"an autoscaler sets the replicas of {' and '.join(conflicts)}",
            "Change the bounds of its autoscaling in the graph, and run `penstock apply`.",
        )
    values = call_helm(target, "be read", lambda: helm.release_values(target))
    for name, count in replicas.items():
        values[name] = {**values.get(name, {}), "replicas": count}
    text = yaml.safe_dump(values, sort_keys=False)
    loaded = parse_graph(text, f"{target.name}.yaml")
    change = against_cluster(loaded, target, api)
    unexpected = [
        c.name for c in change.diff.components if c.action not in (Action.SCALED, Action.UNCHANGED)
    ]
    if unexpected:
        raise release_error(
            target,
            f"more than replicas would change ({', '.join(unexpected)}), because another version "
            "of the chart installed the release",
            "Review `penstock diff`, then run `penstock apply`.",
        )
    return change


def _change(
    loaded: LoadedGraph, target: ReleaseTarget, before: CurrentState, after: tuple[Object, ...]
) -> Change:
    return Change(
        target=target,
        values=loaded.values,
        before=before,
        after=after,
        diff=diff(before.objects, after, before.replicas),
        available_gpus=_available_gpus(loaded),
    )


def _available_gpus(loaded: LoadedGraph) -> int | None:
    each, nodes = loaded.graph.hardware.gpus_per_node, loaded.graph.hardware.nodes
    return None if each is None or nodes is None else each * nodes


def install_or_upgrade(api: Api, change: Change, print_line: Callable[[str], None]) -> Release:
    """Write a new revision. Raises ClusterError; Helm records a partial write as `failed`, and the
    next call continues from it.

    ``print_line``: called if the change differs from what was confirmed, as a rolling update has
    begun or progressed.
    """
    target, revision = change.target, change.before.revision
    chart = chart_path()
    release = _require_unchanged(target, revision)
    checked = _recheck(change, api, release) if release else change
    if checked.transition is not None and checked.values != change.values:
        for line in generations.lines(checked.transition):
            print_line(line)
    change, values = checked, dict(checked.values)
    if revision is None:
        existing = change.after if change.before.installer else ()
        for manifest in existing:  # Helm installs only over objects with these
            api.annotate(manifest, helm_annotations(target))
        return _write(target, api, existing, "install", chart=chart, values=values)
    return _write(target, api, change.after, "upgrade", chart=chart, values=values)


def _require_unchanged(target: ReleaseTarget, expected: Revision | None) -> Release | None:
    """The release. Raises ClusterError if another client wrote it since the user confirmed."""
    release = read_release(target)
    revision = release.revision if release else None
    if revision != expected:
        current = f"revision {revision.number} ({revision.status})" if revision else "not installed"
        raise release_error(
            target,
            f"another client changed it in the meantime: it is now {current}",
            "Review `penstock diff` and apply again.",
        )
    return release


def rollback_revision(target: ReleaseTarget, number: int | None = None) -> int:
    """The revision to roll back to: ``number``, or by default the last one that was ready and
    differs from the newest.

    If none is known to have been ready: the last one of unknown outcome that no later one
    reverted. Raises ClusterError if there is none.
    """
    stored = revisions(target)
    if any(r.number == number for r in stored):
        return int(number or 0)
    if number is None and (ready := _last_ready(target, stored)) is not None:
        return ready
    message = f"has no revision {number}" if number else "has no earlier revision that was ready"
    notes = {NOT_READY: " (was not ready)"}
    numbers = ", ".join(f"{r.number}{notes.get(r.outcome, '')}" for r in stored)
    raise release_error(
        target,
        f"{message}; stored revisions: {numbers}",
        "Select one with `penstock rollback GRAPH REVISION`: see `penstock history`.",
    )


def _last_ready(target: ReleaseTarget, stored: Sequence[Revision]) -> int | None:
    of_chart = [r for r in stored if r.chart == CHART]
    contents = {
        r.number: release.content for r in of_chart if (release := read_release(target, r.number))
    }
    newest = stored[-1]
    # After an interrupted write, also the same content is worth writing.
    same = contents.get(newest.number) if newest.was_deployed else None
    possible = [
        r
        for r in of_chart[::-1]
        if r.number < newest.number and r.was_deployed and contents.get(r.number) != same
    ]

    def is_reverted(revision: Revision) -> bool:
        before = {text for n, text in contents.items() if n < revision.number}
        return any(text in before for n, text in contents.items() if n > revision.number)

    ready = (r.number for r in possible if r.outcome == READY)
    unknown = (r.number for r in possible if not r.outcome and not is_reverted(r))
    return next(ready, None) or next(unknown, None)


def rollback_transition(target: ReleaseTarget, api: Api, number: int) -> Transition | None:
    """How a rollback meets a rolling update in progress; None without one. Raises ClusterError."""
    old = read_release(target, number)
    return _rollback_transition(target, api, require_release(target), old.objects if old else ())


def _rollback_transition(
    target: ReleaseTarget, api: Api, newest: Release, objects: Iterable[Object]
) -> Transition | None:
    update, entries = _read_graph(api, target, newest)
    return None if update is None else _transition(target, newest, update, entries, objects)


def roll_back(target: ReleaseTarget, api: Api, number: int) -> Release:
    """Write a new revision with the content of revision ``number``; as a new generation of workers
    if a rolling update is in progress and serving ones would be lost otherwise.

    Raises ClusterError, before any write if the operator would reject a number of replicas.
    """
    old = read_release(target, number)
    objects = old.objects if old else ()
    live = api.existing(objects)
    api.follow(live)
    if rejected := rejected_replica_changes(live, objects):
        raise _rejected(target, rejected, f"revision {number}: ")
    newest = require_release(target)
    update = _rollback_transition(target, api, newest, objects)
    if update is None or not update.needs_mark:
        return _write(target, api, objects, "rollback", revision=number)
    mark = str(newest.revision.number + 1)
    with stored_chart(api, target, number) as (chart, values):
        marked = generations.marked_values(values, objects, mark)
        after = render(marked, name=target.name, namespace=target.namespace, chart=chart).objects
        return _write(target, api, after, "upgrade", chart=chart, values=marked)


def _write(
    target: ReleaseTarget, api: Api, objects: Iterable[Object], function: str, **arguments: Any
) -> Release:
    """Take over the fields of ``objects``, then call Helm as the manager that applied them last."""
    objects = tuple(objects)
    _keep_autoscaled_replicas(api, objects)
    for manifest in objects:
        api.take_over(_with_helm_metadata(manifest, target))
    try:
        call_helm(
            target,
            "be written",
            lambda: helm_writer.write(function, target, api.manager, **arguments),
        )
    except LockedError:
        raise
    except ClusterError as error:
        raise ClusterError(
            *error.problems,
            Problem(
                place=f"release {target}",
                message="the write failed partway: some objects may already be updated",
                fix="Run `penstock apply` again, or `penstock rollback GRAPH REVISION` with a "
                "revision from `penstock history`.",
            ),
        ) from None
    release = require_release(target)
    release_replicas(api, release)
    return release


def _keep_autoscaled_replicas(api: Api, objects: tuple[Object, ...]) -> None:
    """Keep the number of replicas of pools that get an autoscaler.

    If Helm alone owns the field and its new manifest omits it, the API server deletes the field and
    the pool would drop to one replica until the autoscaler runs.
    """
    scaled = {name for name, w in workloads(objects).items() if w.scaler is not None}
    for manifest in objects:
        names = scaled & workloads([manifest]).keys()
        live = api.get(manifest) if names else None
        if live is None:
            continue
        counts = {n: w.replicas for n, w in workloads([live]).items() if n in names}
        owned_by_helm = {n: c for n, c in counts.items() if _is_owned_by_helm(api, live, n)}
        if owned_by_helm:
            api.apply(_only_replicas(manifest, owned_by_helm), REPLICAS_MANAGER)


def _is_owned_by_helm(api: Api, live: Object, component: str) -> bool:
    """Whether only Helm, or `penstock-replicas`, owns the component's replicas."""
    managers = set(replica_managers(live, component))
    return bool(managers) and managers <= {api.manager, REPLICAS_MANAGER}


def _only_replicas(manifest: Object, counts: Mapping[str, int]) -> Object:
    components = [{"name": name, "replicas": count} for name, count in counts.items()]
    (count, *_) = counts.values()
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": {"name": manifest["metadata"]["name"]},
        "spec": {"components": components} if manifest["kind"] == DGD else {"replicas": count},
    }


def release_replicas(api: Api, release: Release) -> None:
    """End our ownership of the replicas of pools that no longer have an autoscaler."""
    for manifest in release.objects:
        if any(w.scaler for w in workloads([manifest]).values()):
            continue
        live = api.get(manifest) or {"metadata": {}}
        managers = {e.get("manager") for e in live["metadata"].get("managedFields") or ()}
        if REPLICAS_MANAGER in managers:
            api.drop_ownership(manifest, REPLICAS_MANAGER)


def _with_helm_metadata(manifest: Object, target: ReleaseTarget) -> Object:
    """The manifest with the label and annotations by which Helm recognizes its own objects."""
    return {
        **manifest,
        "metadata": {
            **manifest["metadata"],
            "labels": {**labels_of(manifest), "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {**annotations_of(manifest), **helm_annotations(target)},
        },
    }
