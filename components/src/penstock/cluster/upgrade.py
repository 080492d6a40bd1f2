"""Write a release: install, upgrade or roll back, through Helm, whoever wrote the fields before.

Helm applies server-side and never by force, so a field that an edit by hand, an autoscaler or
another Helm holds would refuse the upgrade. Fields are therefore taken over first, in the name of
Helm's command line, and left to it at the end: `helm upgrade` works after `penstock apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock import helm
from penstock.cluster.api import MANAGER, Api
from penstock.cluster.change import Change
from penstock.cluster.diff import refused_hand_backs
from penstock.cluster.drift import owners_of_replicas
from penstock.cluster.release import (
    DEPLOYED,
    Release,
    Revision,
    current,
    history,
    require,
    told,
)
from penstock.cluster.workloads import DGD, Object, workloads
from penstock.errors import ClusterError, Problem
from penstock.helm import ReleaseTarget
from penstock.manifests.render import chart_path

# In whose name the number of replicas outlives Helm's, until an autoscaler writes it.
HANDED_OVER = "penstock-replicas"


def write(api: Api, planned: Change) -> Release:
    """Install or upgrade. Raises ClusterError; a revision that failed half-way is Helm's `failed`,
    and writing again goes on from it."""
    target, values, revision = planned.target, planned.values, planned.before.revision
    _require_unchanged(target, revision)
    if revision is None:
        return _written(target, api, (), lambda: helm.install(target, chart_path(), values))
    return _written(target, api, planned.after, lambda: helm.upgrade(target, chart_path(), values))


def _require_unchanged(target: ReleaseTarget, expected: Revision | None) -> None:
    """What was shown and agreed to is what is there: others write too."""
    now = current(target)
    found = now.revision if now else None
    if found != expected:
        there = f"revision {found.number} ({found.status})" if found else "nothing"
        raise ClusterError(
            Problem(
                place=f"release {target}",
                message=f"somebody else wrote it meanwhile: {there} is there now",
                fix="look again, and decide again",
            )
        )


def revision_before(target: ReleaseTarget, number: int | None = None) -> int:
    """``number``, if Helm keeps it, or else the last one before that Helm applied as a whole.

    Raises ClusterError where there is none.
    """
    kept = history(target)
    newest = kept[-1].number
    wanted = [
        r.number
        for r in kept
        if (r.number == number if number else r.number < newest and r.status in DEPLOYED)
    ]
    if wanted:
        return wanted[-1]
    what = f"there is no revision {number}" if number else "there is nothing to go back to"
    numbers = ", ".join(str(r.number) for r in kept)
    raise ClusterError(Problem(place=f"release {target}", message=f"{what}; Helm keeps {numbers}"))


def roll_back(target: ReleaseTarget, api: Api, number: int) -> Release:
    """A new revision with what that one held. Raises ClusterError; before anything is written where
    an autoscaler's number stands in the way. No dry run: what goes back must not wait for more."""
    old = current(target, number)
    objects = old.objects if old else ()
    live = [found for o in objects if (found := api.get(o)) is not None]
    if refused := refused_hand_backs(live, objects):
        place = f"release {target}"
        raise ClusterError(
            *(
                Problem(place=place, message=f"revision {number}: {refusal}", fix=refusal.fix)
                for refusal in refused
            )
        )
    return _written(target, api, objects, lambda: helm.rollback(target, number))


def _written(
    target: ReleaseTarget, api: Api, objects: Iterable[Object], ask: Callable[[], None]
) -> Release:
    objects = tuple(objects)
    _hand_over(api, objects)
    # Files before the pods that mount them.
    for manifest in sorted(objects, key=lambda o: o["kind"] != "ConfigMap"):
        if manifest["kind"] == "ConfigMap" or api.get(manifest) is not None:
            api.hold(_as_helms(manifest, target))
    try:
        told(target, "be written", ask)
    except ClusterError as error:
        raise ClusterError(
            *error.problems,
            Problem(
                place=f"release {target}",
                message="the cluster may be ahead of Helm's record now",
                fix="apply again; or go back: `penstock rollback GRAPH REVISION`, with a number of "
                "`penstock history`",
            ),
        ) from None
    release = require(target)
    settle(target, api, release)
    return release


def _hand_over(api: Api, objects: tuple[Object, ...]) -> None:
    """Keep the number of replicas that an autoscaler is going to own.

    A field that only Helm held goes when its manifests leave it out, and the pool would fall to one
    replica before its autoscaler comes.
    """
    scaled = {name for name, w in workloads(objects).items() if w.scaler is not None}
    for manifest in objects:
        own = scaled & workloads([manifest]).keys()
        live = api.get(manifest) if own else None
        if live is None:
            continue
        counts = {n: w.replicas for n, w in workloads([live]).items() if n in own}
        held = {n: c for n, c in counts.items() if _is_only_helms(live, n)}
        if held:
            api.hold(_only_replicas(manifest, held), HANDED_OVER)


def _is_only_helms(live: Object, component: str) -> bool:
    """Whether its replicas go when Helm lets go; ours from an earlier time are written anew."""
    holders = set(owners_of_replicas(live, component))
    return bool(holders) and holders <= {MANAGER, helm.field_manager(), HANDED_OVER}


def _only_replicas(manifest: Object, counts: Mapping[str, int]) -> Object:
    components = [{"name": name, "replicas": count} for name, count in counts.items()]
    (some, *_) = counts.values()
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": {"name": manifest["metadata"]["name"]},
        "spec": {"components": components} if manifest["kind"] == DGD else {"replicas": some},
    }


def settle(target: ReleaseTarget, api: Api, release: Release) -> None:
    """Leave the fields to Helm's command line, where the SDK's own name still claims some."""
    manager = helm.field_manager()
    for manifest in release.objects:
        live = api.get(manifest) or {"metadata": {}}
        managers = {e.get("manager") for e in live["metadata"].get("managedFields") or ()}
        if manager != MANAGER and manager in managers:
            api.hold(_as_helms(manifest, target))
            api.let_go(manifest, manager)
        if HANDED_OVER in managers and not any(w.scaler for w in workloads([manifest]).values()):
            api.let_go(manifest, HANDED_OVER)


def _as_helms(manifest: Object, target: ReleaseTarget) -> Object:
    """With what Helm adds to each object, and looks for before it takes one for its own."""
    metadata = manifest["metadata"]
    annotations = {
        "meta.helm.sh/release-name": target.name,
        "meta.helm.sh/release-namespace": target.namespace,
    }
    return {
        **manifest,
        "metadata": {
            **metadata,
            "labels": {**(metadata.get("labels") or {}), "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
        },
    }
