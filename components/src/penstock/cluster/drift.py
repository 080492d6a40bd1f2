"""Drift: fields on the cluster that differ from the release, after an edit or by an autoscaler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cluster.compare import ABSENT, FieldChange, overwritten
from penstock.cluster.workloads import COMPONENT, DGD, Object, workloads

# Fields outside the components that determine the number of pods. Other fields are not compared,
# because the API server normalizes them.
COMPARED_FIELDS = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas"),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount", "triggers"),
    "PodDisruptionBudget": ("minAvailable", "maxUnavailable"),
}

EXISTS = "exists"  # the path of a change of the object itself


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One field that was changed on the cluster."""

    # A component, or the kind and name of another object.
    component: str
    # From the release's value to the live value.
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


def drift(released: Iterable[Object], live: Iterable[Object]) -> tuple[Drift, ...]:
    """Compare the release with the live objects, ignoring fields that only ``live`` has: defaults,
    status, and what controllers add."""
    released_objects, live_objects = list(released), list(live)
    entries = []
    live_workloads = workloads(live_objects)
    for name, declared in workloads(released_objects).items():
        if name not in live_workloads:
            continue
        managers = _managers(live_objects, name)
        changes = [*overwritten(declared.spec, live_workloads[name].spec)]
        count = live_workloads[name].replicas
        if declared.scaler is None and declared.replicas != count:
            changes.insert(0, FieldChange(path="replicas", before=declared.replicas, after=count))
        elif declared.scaler is not None and declared.scaler.bounded(count) != count:
            bounds = str(declared.scaler)
            changes.insert(0, FieldChange(path="replicas", before=bounds, after=count))
        for change in changes:
            entries.append(
                Drift(
                    component=name,
                    change=change,
                    manager=managers.get(change.path.split(".")[0], ""),
                    is_corrected_by_apply=declared.scaler is None or change.path != "replicas",
                )
            )
    return (*entries, *_drift_of_other_objects(released_objects, live_objects))


def _drift_of_other_objects(released: Iterable[Object], live: Iterable[Object]) -> Iterable[Drift]:
    specs = {(o["kind"], o["metadata"]["name"]): o.get("spec", {}) for o in live}
    for manifest in released:
        key = manifest["kind"], manifest["metadata"]["name"]
        for field in COMPARED_FIELDS.get(manifest["kind"], ()) if key in specs else ():
            declared = manifest["spec"].get(field, ABSENT)
            change = FieldChange(path=field, before=declared, after=specs[key].get(field, ABSENT))
            if declared is not ABSENT and list(overwritten(declared, change.after)):
                yield Drift(component=" ".join(key), change=change)


def _managers(objects: list[Object], component: str) -> dict[str, str]:
    """The last field manager of the component's replicas, unless that is Helm."""
    others = [m for o in objects for m in replica_managers(o, component) if m != "helm"]
    return {"replicas": others[-1]} if others else {}


def replica_managers(manifest: Object, component: str) -> list[str]:
    """The managers in the object's managedFields that own the component's replicas."""
    entries = manifest["metadata"].get("managedFields") or ()
    return [str(e.get("manager")) for e in entries if _owns_replicas(manifest, e, component)]


def _owns_replicas(manifest: Object, entry: Mapping[str, Any], component: str) -> bool:
    fields = entry.get("fieldsV1", {}).get("f:spec", {})
    if manifest["kind"] == DGD:
        key = f'k:{{"name":"{component}"}}'
        return "f:replicas" in fields.get("f:components", {}).get(key, {})
    labels = manifest["metadata"].get("labels", {})
    return labels.get(COMPONENT) == component and "f:replicas" in fields
