"""What an upgrade would change, and what was changed on the cluster since the release.

Pure: both sides are manifests. Which pools restart follows the rules of the operator's rolling
updates (1.6) and of the chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.cluster.compare import FieldChange, differences, overwritten
from penstock.cluster.ownership import HELM, other_managers, replica_managers
from penstock.cluster.workloads import (
    CONFIG_MAP_NAME,
    DEPLOYMENT,
    DGD,
    LEADER_WORKER_SET,
    Object,
    Workload,
    annotations_of,
    key_of,
    labels_of,
    outside_the_pods,
    workloads,
)
from penstock.manifests.scalers import BOUNDS, Scaler

GROVE = "nvidia.com/enable-grove"
EXISTS = "exists"  # the path of a drift of the object itself
# Immutable fields by kind.
IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    DGD: (f"annotations.{GROVE}", "spec.backendFramework", "spec.topologyConstraint"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.storageClassName"),
    "StatefulSet": ("spec.volumeClaimTemplates", "spec.serviceName", "spec.selector"),
}


class Action(StrEnum):
    """What happens to a component or object."""

    CREATED = "created"
    REMOVED = "removed"
    RESTARTED = "restarted"  # a component, with or without a change of replicas
    SCALED = "scaled"  # a component: only its number of replicas or their owner changes
    CHANGED = "changed"  # an object that is not a component
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True)
class ComponentDiff:
    """The change of one component."""

    name: str
    action: Action
    before: Workload | None
    after: Workload | None
    # The component's own; a worker also restarts because of other workers' changes.
    changes: tuple[FieldChange, ...] = ()

    @property
    def replicas(self) -> tuple[int, int]:
        return (
            self.before.replicas if self.before else 0,
            self.after.replicas if self.after else 0,
        )

    @property
    def scalers(self) -> tuple[Scaler | None, Scaler | None]:
        """The owner of the number of replicas before and after; None if the graph sets it."""
        return (
            self.before.scaler if self.before else None,
            self.after.scaler if self.after else None,
        )

    @property
    def ends_autoscaling(self) -> bool:
        """Whether the number of replicas passes from an autoscaler back to the graph."""
        before, after = self.scalers
        return bool(before and self.after) and after is None


@dataclass(frozen=True, kw_only=True)
class ObjectDiff:
    """The change of an object that is not a component, such as a PodDisruptionBudget."""

    kind: str
    name: str
    action: Action
    changes: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RejectedChange:
    """A change that the operator, Kubernetes or KEDA would reject."""

    what: str
    why: str = "cannot be changed in place"
    fix: str = "Install it as a second release, and move the traffic to it."

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The change from one set of manifests to another."""

    components: tuple[ComponentDiff, ...]
    # All objects but the components and their config files.
    objects: tuple[ObjectDiff, ...]
    rejected: tuple[RejectedChange, ...]
    # "dynamo" or "plain", before and after; "" for an empty side.
    platforms: tuple[str, str]
    # The GPUs of all replicas, before and after.
    gpus: tuple[int, int]
    # After the change, with every autoscaler at its maximum.
    max_gpus: int
    # Whether new workers start before old ones stop: on Deployments, not on Grove.
    has_surge: bool

    @property
    def changes_platform(self) -> bool:
        return all(self.platforms) and self.platforms[0] != self.platforms[1]

    @property
    def is_empty(self) -> bool:
        return not self.objects and all(c.action is Action.UNCHANGED for c in self.components)

    @property
    def restarted(self) -> tuple[ComponentDiff, ...]:
        """Worker pools whose pods are replaced."""
        return tuple(c for c in self.components if is_worker(c) and c.action is Action.RESTARTED)

    @property
    def surge_gpus(self) -> int:
        """GPUs of one additional replica of each restarted pool."""
        if not self.has_surge:
            return 0
        return sum(c.after.gpus for c in self.restarted if c.after and all(c.replicas))

    @property
    def required_free_gpus(self) -> int:
        """GPUs that must be free before the upgrade, which may scale up and surge at once."""
        return max(self.gpus) + self.surge_gpus - self.gpus[0]

    @property
    def reduced(self) -> tuple[ComponentDiff, ...]:
        """Pools that lose a replica before its replacement starts."""
        return () if self.has_surge else tuple(c for c in self.restarted if all(c.replicas))


def is_worker(component: ComponentDiff) -> bool:
    return any(w.is_worker for w in (component.before, component.after) if w)


def diff(
    before: Iterable[Object], after: Iterable[Object], replicas: Mapping[str, int] | None = None
) -> Diff:
    """The change from ``before``, which may be empty, to ``after``.

    ``replicas``: the current number by component, where it differs from the manifests'.
    """
    old_objects, new_objects = list(before), list(after)
    platforms = (_platform(old_objects), _platform(new_objects))
    old = {
        name: replace(workload, replicas=(replicas or {}).get(name, workload.replicas))
        for name, workload in workloads(old_objects).items()
    }
    new = {
        name: _with_current_replicas(workload, old.get(name))
        for name, workload in workloads(new_objects).items()
    }
    gpus = (_gpus(old), _gpus(new))
    if all(platforms) and platforms[0] != platforms[1]:
        old = {}  # every object is replaced by one of another kind
    names = sorted(dict.fromkeys((*old, *new)), key=lambda name: name not in new)
    components = _restart_together(tuple(_component(old.get(n), new.get(n)) for n in names))
    objects = tuple(_objects(old_objects, new_objects))
    return Diff(
        components=components,
        objects=objects,
        rejected=tuple(_rejected(components, objects, platforms, replicas or {})),
        platforms=platforms,
        gpus=gpus,
        max_gpus=_max_gpus(new),
        has_surge=has_surge(new_objects),
    )


def _with_current_replicas(after: Workload, before: Workload | None) -> Workload:
    """An upgrade does not change the number that an autoscaler set, except to keep its bounds."""
    if after.scaler is None or before is None:
        return after
    count = before.replicas
    if after.scaler != before.scaler:
        count = after.scaler.bounded(count)
    return replace(after, replicas=count)


def _gpus(components: Mapping[str, Workload]) -> int:
    return sum(workload.gpus * workload.replicas for workload in components.values())


def _max_gpus(components: Mapping[str, Workload]) -> int:
    return sum(
        w.gpus * ((w.scaler.max_replicas if w.scaler else None) or w.replicas)
        for w in components.values()
    )


def has_surge(objects: Iterable[Object]) -> bool:
    """Whether new workers start before old ones stop: on Deployments, not on Grove."""
    graphs = (annotations_of(o) for o in objects if o["kind"] == DGD)
    return all(annotations.get(GROVE) == "false" for annotations in graphs)


def _platform(objects: list[Object]) -> str:
    kinds = {o["kind"] for o in objects}
    return "dynamo" if DGD in kinds else "plain" if DEPLOYMENT in kinds else ""


def _component(before: Workload | None, after: Workload | None) -> ComponentDiff:
    name = after.name if after else before.name if before else ""
    if before is None or after is None:
        action = Action.CREATED if before is None else Action.REMOVED
        return ComponentDiff(name=name, action=action, before=before, after=after)
    changes = [*differences(before.spec, after.spec)]
    if any(change.path.startswith("config.") for change in changes):
        changes = [change for change in changes if change.path != CONFIG_MAP_NAME]
    if before.type != after.type:
        changes.append(FieldChange(path="type", before=before.type, after=after.type))
    owner_changes = (before.scaler is None) != (after.scaler is None)
    scales = before.replicas != after.replicas or owner_changes
    action = Action.RESTARTED if changes else Action.SCALED if scales else Action.UNCHANGED
    return ComponentDiff(
        name=name, action=action, before=before, after=after, changes=tuple(changes)
    )


def _restart_together(components: tuple[ComponentDiff, ...]) -> tuple[ComponentDiff, ...]:
    """A change of one worker pool restarts all worker pools: they share a generation."""
    if all(c.before is None or c.after is None for c in components):
        return components
    starts_generation = {Action.RESTARTED, Action.CREATED, Action.REMOVED}
    if not any(is_worker(c) and c.action in starts_generation for c in components):
        return components
    return tuple(
        ComponentDiff(name=c.name, action=Action.RESTARTED, before=c.before, after=c.after)
        if is_worker(c) and c.action in (Action.SCALED, Action.UNCHANGED)
        else c
        for c in components
    )


def _objects(before: list[Object], after: list[Object]) -> Iterable[ObjectDiff]:
    old, new = _other_objects(before), _other_objects(after)
    for (kind, name), manifest in new.items():
        if (kind, name) not in old:
            yield ObjectDiff(kind=kind, name=name, action=Action.CREATED)
        elif changes := tuple(differences(_content(old[kind, name]), _content(manifest))):
            yield ObjectDiff(kind=kind, name=name, action=Action.CHANGED, changes=changes)
    for (kind, name), manifest in old.items():
        policy = annotations_of(manifest).get("helm.sh/resource-policy")
        if (kind, name) not in new and policy != "keep":
            yield ObjectDiff(kind=kind, name=name, action=Action.REMOVED)


def _other_objects(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """The objects by kind and name, without components and their config files."""
    reported_as_components = (DEPLOYMENT, LEADER_WORKER_SET, "ConfigMap")
    return {key_of(o): o for o in objects if o["kind"] not in reported_as_components}


def _content(manifest: Object) -> Mapping[str, object]:
    """The manifest without status, the chart's version, and a DGD's components."""
    labels = {k: v for k, v in labels_of(manifest).items() if k != "helm.sh/chart"}
    content = outside_the_pods(manifest)
    return {**content, "labels": labels, "annotations": annotations_of(manifest)}


def _rejected(
    components: tuple[ComponentDiff, ...],
    objects: tuple[ObjectDiff, ...],
    platforms: tuple[str, str],
    live: Mapping[str, int],
) -> Iterable[RejectedChange]:
    """What the validation of the Dynamo operator 1.6, Kubernetes and KEDA would reject."""
    if platforms == ("dynamo", "dynamo"):
        for component in components:
            yield from _rejected_by_operator(component, live)
    removed_scalers = {o.name for o in objects if o.kind in BOUNDS and o.action is Action.REMOVED}
    for entry in objects:
        replaces_scaler = entry.kind in BOUNDS and entry.action is Action.CREATED
        if replaces_scaler and entry.name in removed_scalers:
            yield RejectedChange(
                what=f"{entry.kind} {entry.name}",
                why="KEDA rejects a second autoscaler of one target, and the old one is removed "
                "only after the new one is created",
                fix="Apply `owner: external` first, which removes the old autoscaler.",
            )
        for change in entry.changes:
            if change.path.startswith(IMMUTABLE.get(entry.kind, ())):
                yield RejectedChange(what=f"{entry.kind} {entry.name}: {change}")


def _rejected_by_operator(
    component: ComponentDiff, live: Mapping[str, int]
) -> Iterable[RejectedChange]:
    name = component.name
    if component.action is Action.CREATED:
        yield RejectedChange(what=name, why="cannot be added to an installed graph")
    if component.action is Action.REMOVED:
        yield RejectedChange(what=name, why="cannot be removed from an installed graph")
    for change in component.changes:
        if change.path == "type" or change.path.startswith("multinode"):
            yield RejectedChange(what=f"{name}: {change}")
    yield from _rejected_replicas(component, live)


def _rejected_replicas(
    component: ComponentDiff, live: Mapping[str, int]
) -> Iterable[RejectedChange]:
    """The operator rejects a new number of replicas in the same change that ends autoscaling."""
    name = component.name
    before, after = component.replicas
    if component.ends_autoscaling and live.get(name, after) != after:
        yield RejectedChange(
            what=f"{name}: replicas {before} → {after}",
            why="cannot change while its autoscaling ends",
            fix=f"Set {name}.replicas to {before}, apply, and set the new number afterwards; or "
            f"first run `kubectl scale dgdsa/RELEASE-{name} --replicas={after}`",
        )


def rejected_replica_changes(
    live: Iterable[Object], after: Iterable[Object]
) -> list[RejectedChange]:
    """Numbers of replicas of ``after`` that the operator would reject for the ``live`` graph."""
    old = workloads(o for o in live if o["kind"] == DGD)
    new = workloads(o for o in after if o["kind"] == DGD)
    counts = {name: workload.replicas for name, workload in old.items()}
    both = (_component(old[name], new[name]) for name in old if name in new)
    return [rejected for component in both for rejected in _rejected_replicas(component, counts)]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One field that was changed on the cluster."""

    # A component, or the kind and name of another object.
    component: str
    # The release's value and the live one.
    change: FieldChange
    # The field manager that wrote it; "" if unknown.
    manager: str = ""
    # False for a number of replicas outside its autoscaler's bounds, which the autoscaler corrects.
    is_corrected_by_apply: bool = True

    def __str__(self) -> str:
        by = f", by {self.manager}" if self.manager else ""
        if self.change.path == EXISTS:
            return f"{self.component}: deleted since the release"
        return f"{self.component}: {self.change} since the release{by}"


def drift(
    released: Iterable[Object],
    live: Iterable[Object],
    expected: Iterable[Object] = (),
    manager: str = HELM,
) -> tuple[Drift, ...]:
    """Compare the release with the live objects.

    ``expected``: what the live objects would be after an apply of the release by ``manager``, from
    the API server's response to a dry run, so that its defaults and what controllers set are no
    drift. Of a component that is not among them, fields that only ``live`` has are ignored; other
    objects are not compared.
    """
    released_objects, live_objects, expected_objects = list(released), list(live), list(expected)
    entries: list[Drift] = []
    live_workloads, expected_workloads = workloads(live_objects), workloads(expected_objects)
    for name, declared in workloads(released_objects).items():
        if name not in live_workloads:
            continue
        managers = _managers(live_objects, name, manager)
        expectation = expected_workloads.get(name)
        changes = _workload_changes(declared, live_workloads[name], expectation)
        entries += (
            Drift(
                component=name,
                change=change,
                manager=managers.get(change.path, managers.get("")) or "",
                is_corrected_by_apply=declared.scaler is None or change.path != "replicas",
            )
            for change in changes
        )
    outside = _outside_the_pods(released_objects, live_objects, expected_objects, manager)
    return (*entries, *outside)


def _workload_changes(
    declared: Workload, live: Workload, expected: Workload | None
) -> Iterator[FieldChange]:
    count = live.replicas
    if declared.scaler is None and declared.replicas != count:
        yield FieldChange(path="replicas", before=declared.replicas, after=count)
    elif declared.scaler is not None and declared.scaler.bounded(count) != count:
        yield FieldChange(path="replicas", before=str(declared.scaler), after=count)
    if expected is None:
        yield from overwritten(declared.spec, live.spec)
    else:
        yield from differences(expected.spec, live.spec)


def _outside_the_pods(
    released: Iterable[Object], live: Iterable[Object], expected: Iterable[Object], manager: str
) -> Iterable[Drift]:
    live_by_key = {key_of(o): o for o in live}
    released_by_key = {key_of(o): o for o in released}
    for manifest in expected:
        key = key_of(manifest)
        current, declared = live_by_key.get(key), released_by_key.get(key)
        if current is None or declared is None:
            continue
        before, after = (_declared_content(o, declared) for o in (manifest, current))
        for change in differences(before, after):
            names = other_managers(current, manager)
            yield Drift(component=" ".join(key), change=change, manager=names)


def _declared_content(manifest: Object, declared: Object) -> Mapping[str, Any]:
    """What `drift` does not compare by component; of the metadata what the release declares."""
    if manifest["kind"] == "ConfigMap":  # in components, and immutable
        return {}
    content = outside_the_pods(manifest)
    for field, read in (("labels", labels_of), ("annotations", annotations_of)):
        content[field] = {k: v for k, v in read(manifest).items() if k in read(declared)}
    return content


def _managers(objects: list[Object], component: str, manager: str) -> dict[str, str]:
    """The last field manager of the component's replicas other than ``manager``; under "" those of
    fields that were added."""
    managers = {}
    for manifest in objects:
        if component in workloads([manifest]):
            managers[""] = other_managers(manifest, manager)
            writers = [m for m in replica_managers(manifest, component) if m != manager]
            if writers:
                managers["replicas"] = writers[-1]
    return managers
