"""What an upgrade would do: which pools restart, which only scale, and what that costs.

Pure: both sides are manifests. The rules are the operator's (rolling updates, 1.6) and the chart's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.cluster.compare import FieldChange, differences
from penstock.cluster.workloads import (
    CONFIG_FILE,
    DGD,
    GROUPED,
    PLAIN,
    Object,
    Workload,
    workloads,
)
from penstock.manifests.scalers import BOUNDS, Scaler

GROVE = "nvidia.com/enable-grove"
# What cannot be changed in place, by kind.
FIXED: Mapping[str, tuple[str, ...]] = {
    DGD: (f"annotations.{GROVE}", "spec.backendFramework", "spec.topologyConstraint"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.storageClassName"),
    "StatefulSet": ("spec.volumeClaimTemplates", "spec.serviceName", "spec.selector"),
}


class Action(StrEnum):
    CREATED = "created"
    REMOVED = "removed"
    RESTARTED = "restarted"
    SCALED = "scaled"
    CHANGED = "changed"  # an object beside the components
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True)
class ComponentDiff:
    """``changes`` are the component's own; a worker restarts for those of other workers too."""

    name: str
    fate: Action
    before: Workload | None
    after: Workload | None
    changes: tuple[FieldChange, ...] = ()

    @property
    def replicas(self) -> tuple[int, int]:
        return (
            self.before.replicas if self.before else 0,
            self.after.replicas if self.after else 0,
        )

    @property
    def scalers(self) -> tuple[Scaler | None, Scaler | None]:
        """What owns the number of replicas, before and after; None where the graph does."""
        return (
            self.before.scaler if self.before else None,
            self.after.scaler if self.after else None,
        )

    @property
    def is_handed_back(self) -> bool:
        """An autoscaler's before, the graph's after."""
        before, after = self.scalers
        return bool(before and self.after) and after is None


@dataclass(frozen=True, kw_only=True)
class ObjectDiff:
    """An object beside the components: made, changed (with its differences), or gone."""

    kind: str
    name: str
    fate: Action
    changes: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RejectedChange:
    """What the cluster would refuse of a change."""

    what: str
    why: str = "cannot be changed in place"
    fix: str = "install it as another release beside this one, and move the traffic"

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Diff:
    components: tuple[ComponentDiff, ...]
    objects: tuple[ObjectDiff, ...]
    refused: tuple[RejectedChange, ...]
    platforms: tuple[str, str]  # dynamo or plain, before and after; "" where there is nothing
    gpus: tuple[int, int]  # before and after, when all replicas are there
    most_gpus: int  # after, when every autoscaler has gone as far as it may
    has_surge: bool  # new workers come before old ones go: on Deployments, not on Grove

    @property
    def is_another_platform(self) -> bool:
        return all(self.platforms) and self.platforms[0] != self.platforms[1]

    @property
    def is_empty(self) -> bool:
        return not self.objects and all(c.fate is Action.UNCHANGED for c in self.components)

    @property
    def restarted(self) -> tuple[ComponentDiff, ...]:
        """Workers that get a new generation."""
        return tuple(c for c in self.components if is_worker(c) and c.fate is Action.RESTARTED)

    @property
    def surge_gpus(self) -> int:
        """GPUs of one more replica of each pool, needed beside the graph's own."""
        if not self.has_surge:
            return 0
        return sum(c.after.gpus for c in self.restarted if c.after and all(c.replicas))

    @property
    def spare_gpus(self) -> int:
        """GPUs that have to be free before the upgrade: it may grow and surge at once."""
        return max(self.gpus) + self.surge_gpus - self.gpus[0]

    @property
    def dips(self) -> tuple[ComponentDiff, ...]:
        """Pools that lose a replica before its successor comes."""
        return () if self.has_surge else tuple(c for c in self.restarted if all(c.replicas))


def is_worker(component: ComponentDiff) -> bool:
    return any(w.is_worker for w in (component.before, component.after) if w)


def diff(
    before: Iterable[Object], after: Iterable[Object], replicas: Mapping[str, int] | None = None
) -> Diff:
    """The change from one set of manifests to another; ``before`` may be empty, and have other
    ``replicas`` by now."""
    old_objects, new_objects = list(before), list(after)
    platforms = (_platform(old_objects), _platform(new_objects))
    old = {
        name: replace(workload, replicas=(replicas or {}).get(name, workload.replicas))
        for name, workload in workloads(old_objects).items()
    }
    new = {
        name: _scaled(workload, old.get(name)) for name, workload in workloads(new_objects).items()
    }
    gpus = (_gpus(old), _gpus(new))
    if all(platforms) and platforms[0] != platforms[1]:
        old = {}  # nothing of one platform becomes the other's
    names = sorted(dict.fromkeys((*old, *new)), key=lambda name: name not in new)
    components = _generation(tuple(_component(old.get(n), new.get(n)) for n in names))
    objects = tuple(_objects(old_objects, new_objects))
    return Diff(
        components=components,
        objects=objects,
        refused=tuple(_refusals(components, objects, platforms, replicas or {})),
        platforms=platforms,
        gpus=gpus,
        most_gpus=_most_gpus(new),
        has_surge=platforms[1] == "plain" or _annotation(new_objects, GROVE) == "false",
    )


def _scaled(after: Workload, before: Workload | None) -> Workload:
    """An upgrade leaves the number to its autoscaler, which keeps it in its bounds."""
    if after.scaler is None or before is None:
        return after
    count = before.replicas
    if after.scaler != before.scaler:
        count = after.scaler.bounded(count)
    return replace(after, replicas=count)


def _gpus(found: Mapping[str, Workload]) -> int:
    return sum(workload.gpus * workload.replicas for workload in found.values())


def _most_gpus(found: Mapping[str, Workload]) -> int:
    return sum(
        w.gpus * ((w.scaler.most if w.scaler else None) or w.replicas) for w in found.values()
    )


def _annotation(objects: list[Object], name: str) -> str:
    """Of the graph; empty where there is none."""
    graphs = [o for o in objects if o["kind"] == DGD]
    return str((graphs[0]["metadata"].get("annotations") or {}).get(name, "")) if graphs else ""


def _platform(objects: list[Object]) -> str:
    kinds = {o["kind"] for o in objects}
    return "dynamo" if DGD in kinds else "plain" if PLAIN in kinds else ""


def _component(before: Workload | None, after: Workload | None) -> ComponentDiff:
    name = after.name if after else before.name if before else ""
    if before is None or after is None:
        fate = Action.CREATED if before is None else Action.REMOVED
        return ComponentDiff(name=name, fate=fate, before=before, after=after)
    changes = [*differences(before.spec, after.spec)]
    if any(change.path.startswith("config.") for change in changes):
        changes = [change for change in changes if change.path != CONFIG_FILE]
    if before.type != after.type:
        changes.append(FieldChange(path="type", before=before.type, after=after.type))
    is_handed = (before.scaler is None) != (after.scaler is None)
    scales = before.replicas != after.replicas or is_handed
    fate = Action.RESTARTED if changes else Action.SCALED if scales else Action.UNCHANGED
    return ComponentDiff(name=name, fate=fate, before=before, after=after, changes=tuple(changes))


def _generation(components: tuple[ComponentDiff, ...]) -> tuple[ComponentDiff, ...]:
    """A change of one worker starts a new generation of all of them."""
    if all(c.before is None or c.after is None for c in components):
        return components
    moved = {Action.RESTARTED, Action.CREATED, Action.REMOVED}
    if not any(is_worker(c) and c.fate in moved for c in components):
        return components
    stay = (Action.SCALED, Action.UNCHANGED)
    return tuple(
        ComponentDiff(name=c.name, fate=Action.RESTARTED, before=c.before, after=c.after)
        if is_worker(c) and c.fate in stay
        else c
        for c in components
    )


def _objects(before: list[Object], after: list[Object]) -> Iterable[ObjectDiff]:
    """All but the workloads, which are components, and their files, which restart them."""
    old, new = _beside(before), _beside(after)
    for (kind, name), manifest in new.items():
        if (kind, name) not in old:
            yield ObjectDiff(kind=kind, name=name, fate=Action.CREATED)
        elif changes := tuple(differences(_content(old[kind, name]), _content(manifest))):
            yield ObjectDiff(kind=kind, name=name, fate=Action.CHANGED, changes=changes)
    for (kind, name), manifest in old.items():
        kept = (manifest["metadata"].get("annotations") or {}).get("helm.sh/resource-policy")
        if (kind, name) not in new and kept != "keep":
            yield ObjectDiff(kind=kind, name=name, fate=Action.REMOVED)


def _beside(objects: list[Object]) -> dict[tuple[str, str], Object]:
    of_components = (PLAIN, GROUPED, "ConfigMap")
    return {
        (o["kind"], o["metadata"]["name"]): o for o in objects if o["kind"] not in of_components
    }


def _content(manifest: Object) -> Mapping[str, object]:
    """All but status and the chart's version; of a graph, what its components do not hold."""
    rest = {k: v for k, v in manifest.items() if k not in ("metadata", "status")}
    if manifest["kind"] == DGD:
        rest["spec"] = {k: v for k, v in manifest.get("spec", {}).items() if k != "components"}
    metadata = manifest["metadata"]
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != "helm.sh/chart"}
    return {**rest, "labels": labels, "annotations": metadata.get("annotations") or {}}


def _refusals(
    components: tuple[ComponentDiff, ...],
    objects: tuple[ObjectDiff, ...],
    platforms: tuple[str, str],
    live: Mapping[str, int],
) -> Iterable[RejectedChange]:
    """The operator's validation of 1.6, Kubernetes' own."""
    if platforms == ("dynamo", "dynamo"):
        for component in components:
            yield from _refused_of(component, live)
    swapped = {o.name for o in objects if o.kind in BOUNDS and o.fate is Action.REMOVED}
    for found in objects:
        if found.kind in BOUNDS and found.fate is Action.CREATED and found.name in swapped:
            yield RejectedChange(
                what=f"{found.kind} {found.name}",
                why="KEDA admits no second autoscaler of one target, and both would be there",
                fix="apply `owner: external` first, which takes the old one away",
            )
        for change in found.changes:
            if change.path.startswith(FIXED.get(found.kind, ())):
                yield RejectedChange(what=f"{found.kind} {found.name}: {change}")


def _refused_of(component: ComponentDiff, live: Mapping[str, int]) -> Iterable[RejectedChange]:
    name = component.name
    if component.fate in (Action.CREATED, Action.REMOVED):
        yield RejectedChange(what=f"{name}: the set of components")
    for change in component.changes:
        if change.path == "type" or change.path.startswith("multinode"):
            yield RejectedChange(what=f"{name}: {change}")
    yield from _handed_back(component, live)


def _handed_back(component: ComponentDiff, live: Mapping[str, int]) -> Iterable[RejectedChange]:
    name = component.name
    before, after = component.replicas
    if component.is_handed_back and live.get(name, after) != after:
        yield RejectedChange(
            what=f"{name}: replicas {before} → {after}",
            why="cannot change as its autoscaling ends",
            fix=f"write {name}.replicas: {before}, apply, and then the number that you want; or "
            f"first kubectl scale dgdsa/RELEASE-{name} --replicas={after}",
        )


def refused_hand_backs(live: Iterable[Object], after: Iterable[Object]) -> list[RejectedChange]:
    """Numbers that the operator would not let ``after`` change, by the ``live`` graph itself."""
    old = workloads(o for o in live if o["kind"] == DGD)
    new = workloads(o for o in after if o["kind"] == DGD)
    counts = {name: workload.replicas for name, workload in old.items()}
    both = (_component(old[name], new[name]) for name in old if name in new)
    return [refusal for component in both for refusal in _handed_back(component, counts)]
