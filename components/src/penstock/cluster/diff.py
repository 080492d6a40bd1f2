"""What an upgrade would do: which pools restart, which only scale, and what that costs.

Pure: both sides are manifests. The rules are the operator's (rolling updates, 1.6) and the chart's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.cluster.compare import ABSENT, Change, differences
from penstock.cluster.workloads import DGD, Object, Workload, workloads


class Fate(StrEnum):
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
    fate: Fate
    before: Workload | None
    after: Workload | None
    changes: tuple[Change, ...] = ()

    @property
    def replicas(self) -> tuple[int, int]:
        return (
            self.before.replicas if self.before else 0,
            self.after.replicas if self.after else 0,
        )


@dataclass(frozen=True, kw_only=True)
class ObjectDiff:
    """An object beside the components: made, changed (with its differences), or gone."""

    kind: str
    name: str
    fate: Fate
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diff:
    """``refused``: what the operator's webhook is known to refuse, in words."""

    components: tuple[ComponentDiff, ...]
    objects: tuple[ObjectDiff, ...]
    refused: tuple[str, ...]
    platforms: tuple[str, str]  # dynamo or plain, before and after; "" where there is nothing

    @property
    def is_another_platform(self) -> bool:
        return all(self.platforms) and self.platforms[0] != self.platforms[1]

    @property
    def is_empty(self) -> bool:
        return not self.objects and all(c.fate is Fate.UNCHANGED for c in self.components)

    @property
    def restarted(self) -> tuple[ComponentDiff, ...]:
        """Workers that get a new generation."""
        workers = (c for c in self.components if (c.after or c.before) and is_worker(c))
        return tuple(c for c in workers if c.fate is Fate.RESTARTED)

    @property
    def gpus(self) -> tuple[int, int]:
        """Before and after, when all replicas are there."""
        return (
            sum(c.before.gpus * c.before.replicas for c in self.components if c.before),
            sum(c.after.gpus * c.after.replicas for c in self.components if c.after),
        )

    @property
    def surge_gpus(self) -> int:
        """GPUs that the roll-out needs beside those in use: one more replica of each pool."""
        return sum(c.after.gpus for c in self.restarted if c.after and c.after.nodes == 1)

    @property
    def dips(self) -> tuple[ComponentDiff, ...]:
        """Pools that lose a replica first: on several nodes there is no surge."""
        return tuple(c for c in self.restarted if c.after and c.after.nodes > 1)


def is_worker(component: ComponentDiff) -> bool:
    return any(w.is_worker for w in (component.before, component.after) if w)


def diff(before: Iterable[Object], after: Iterable[Object]) -> Diff:
    """The change from one set of manifests to another; ``before`` may be empty."""
    old_objects, new_objects = list(before), list(after)
    platforms = (_platform(old_objects), _platform(new_objects))
    old, new = workloads(old_objects), workloads(new_objects)
    if all(platforms) and platforms[0] != platforms[1]:
        old = {}  # nothing of one platform becomes the other's
    found = [_component(old.get(name), new.get(name)) for name in [*old, *new] if name in new]
    found += [_component(old[name], None) for name in old if name not in new]
    unique = {component.name: component for component in found}
    components = _generation(tuple(unique.values()))
    return Diff(
        components=components,
        objects=tuple(_objects(old_objects, new_objects)),
        refused=tuple(_refusals(components)),
        platforms=platforms,
    )


def _platform(objects: list[Object]) -> str:
    kinds = {o["kind"] for o in objects}
    return "dynamo" if DGD in kinds else "plain" if "Deployment" in kinds else ""


def _component(before: Workload | None, after: Workload | None) -> ComponentDiff:
    name = after.name if after else before.name if before else ""
    if before is None or after is None:
        fate = Fate.CREATED if before is None else Fate.REMOVED
        return ComponentDiff(name=name, fate=fate, before=before, after=after)
    changes = [*differences(before.spec, after.spec)]
    if before.type != after.type:
        changes.append(Change(path="type", before=before.type, after=after.type))
    scales = before.replicas != after.replicas
    fate = Fate.RESTARTED if changes else Fate.SCALED if scales else Fate.UNCHANGED
    return ComponentDiff(name=name, fate=fate, before=before, after=after, changes=tuple(changes))


def _generation(components: tuple[ComponentDiff, ...]) -> tuple[ComponentDiff, ...]:
    """A change of one worker starts a new generation of all of them."""
    if all(c.before is None or c.after is None for c in components):
        return components
    moved = {Fate.RESTARTED, Fate.CREATED, Fate.REMOVED}
    if not any(is_worker(c) and c.fate in moved for c in components):
        return components
    stay = (Fate.SCALED, Fate.UNCHANGED)
    return tuple(
        ComponentDiff(name=c.name, fate=Fate.RESTARTED, before=c.before, after=c.after)
        if is_worker(c) and c.fate in stay
        else c
        for c in components
    )


def _objects(before: list[Object], after: list[Object]) -> Iterable[ObjectDiff]:
    """All but the workloads, which are components, and their files, which restart them."""
    old, new = _beside(before), _beside(after)
    for (kind, name), manifest in new.items():
        if (kind, name) not in old:
            yield ObjectDiff(kind=kind, name=name, fate=Fate.CREATED)
        elif changes := tuple(differences(_content(old[kind, name]), _content(manifest))):
            yield ObjectDiff(kind=kind, name=name, fate=Fate.CHANGED, changes=changes)
    for kind, name in old:
        if (kind, name) not in new:
            yield ObjectDiff(kind=kind, name=name, fate=Fate.REMOVED)


def _beside(objects: list[Object]) -> dict[tuple[str, str], Object]:
    of_components = (DGD, "Deployment", "ConfigMap")
    return {
        (o["kind"], o["metadata"]["name"]): o for o in objects if o["kind"] not in of_components
    }


def _content(manifest: Object) -> Mapping[str, object]:
    return {k: v for k, v in manifest.items() if k not in ("metadata", "status")}


def _refusals(components: tuple[ComponentDiff, ...]) -> Iterable[str]:
    for component in components:
        for change in component.changes:
            if change.path == "type":
                yield f"{component.name}: type cannot change ({change.before} → {change.after})"
            if change.path.startswith("multinode") and ABSENT not in (change.before, change.after):
                yield f"{component.name}: nodes cannot change ({change.before} → {change.after})"
