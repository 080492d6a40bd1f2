"""Install, upgrade or roll back a release through Helm, taking over fields of other managers.

Helm uses server-side apply without force, so it fails on a field that kubectl or an autoscaler has
set to another value. Their ownership of these fields is removed first, which changes no value: the
cluster changes only under Helm's own lock, the record of the new revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from penstock.cluster import helm_writer
from penstock.cluster.api import Api
from penstock.cluster.change import Change, earlier_objects, has_drift, read_graph, recheck
from penstock.cluster.diff import rejected_replica_changes
from penstock.cluster.generations import Transition, lines, marked_values, transition
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
    read_release,
    release_error,
    require_release,
    revisions,
    stored_chart,
)
from penstock.cluster.workloads import DGD, Object, annotations_of, labels_of, workloads
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget
from penstock.manifests.render import chart_path, render


def install_or_upgrade(api: Api, change: Change, print_line: Callable[[str], None]) -> Release:
    """Write a new revision. Raises ClusterError; Helm records a partial write as `failed`, and the
    next call continues from it.

    ``print_line``: called if the change differs from what was confirmed, as a rolling update has
    begun or progressed.
    """
    target, revision = change.target, change.before.revision
    chart = chart_path()
    release = _require_unchanged(target, revision)
    checked = recheck(change, api, release) if release else change
    if checked.transition is not None and checked.values != change.values:
        for line in lines(checked.transition):
            print_line(line)
    change, values = checked, checked.values
    if revision is None:
        existing = change.after if change.before.installer else ()
        for manifest in existing:  # Helm installs only over objects with these
            api.annotate(manifest, helm_annotations(target))
        return _write(target, api, existing, partial(helm_writer.install, target, chart, values))
    return _write(target, api, change.after, partial(helm_writer.upgrade, target, chart, values))


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
    update, entries = read_graph(api, target, newest)
    if update is None:
        return None
    earlier = earlier_objects(target, newest.revision)
    workers = {name for name, w in workloads(newest.objects).items() if w.is_worker}
    differs = has_drift(entries, workers)
    return transition(update, objects, newest.objects, earlier, has_drift=differs)


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
        place = f"release {target}"
        raise ClusterError(
            *(
                Problem(place=place, message=f"revision {number}: {entry}", fix=entry.fix)
                for entry in rejected
            )
        )
    newest = require_release(target)
    update = _rollback_transition(target, api, newest, objects)
    if update is None or not update.needs_mark:
        return _write(target, api, objects, partial(helm_writer.rollback, target, number))
    mark = str(newest.revision.number + 1)
    with stored_chart(api, target, number) as (chart, values):
        marked = marked_values(values, objects, mark)
        after = render(marked, name=target.name, namespace=target.namespace, chart=chart).objects
        return _write(target, api, after, partial(helm_writer.upgrade, target, chart, marked))


def _write(
    target: ReleaseTarget, api: Api, objects: Iterable[Object], call: Callable[[str], None]
) -> Release:
    """Take over the fields of ``objects``, then call Helm as the manager that applied them last."""
    objects = tuple(objects)
    _keep_autoscaled_replicas(api, objects)
    for manifest in objects:
        api.take_over(_with_helm_metadata(manifest, target))
    try:
        call_helm(target, "be written", lambda: call(api.manager))
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
