"""What the cluster holds that the release did not ask for: edits by hand, or an autoscaler's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cluster.compare import ABSENT, FieldChange, overwritten
from penstock.cluster.workloads import COMPONENT, DGD, Object, workloads

# Fields beside the components that decide how many pods there are; the API server spells others
# its own way.
WATCHED = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas"),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount", "triggers"),
    "PodDisruptionBudget": ("minAvailable", "maxUnavailable"),
}


@dataclass(frozen=True, kw_only=True)
class Drift:
    """``change`` from what was asked to what is there; ``by`` is the field's manager, if known;
    ``is_mended``: by an apply. A number out of its autoscaler's bounds is the autoscaler's to mend.
    """

    component: str
    change: FieldChange
    by: str = ""
    is_mended: bool = True

    def __str__(self) -> str:
        by = f", by {self.by}" if self.by else ""
        return f"{self.component}: {self.change} since the release{by}"


def drift(released: Iterable[Object], live: Iterable[Object]) -> tuple[Drift, ...]:
    """``live`` may hold more than ``released``: defaults, status, what controllers add."""
    asked_for, there = list(released), list(live)
    found = []
    now = workloads(there)
    for name, asked in workloads(asked_for).items():
        if name not in now:
            continue
        managers = _managers(there, name)
        changes = [*overwritten(asked.spec, now[name].spec)]
        count = now[name].replicas
        if asked.scaler is None and asked.replicas != count:
            changes.insert(0, FieldChange(path="replicas", before=asked.replicas, after=count))
        elif asked.scaler is not None and asked.scaler.bounded(count) != count:
            changes.insert(0, FieldChange(path="replicas", before=str(asked.scaler), after=count))
        for change in changes:
            by = managers.get(change.path.split(".")[0], "")
            mended = asked.scaler is None or change.path != "replicas"
            found.append(Drift(component=name, change=change, by=by, is_mended=mended))
    return (*found, *_beside(asked_for, there))


def _beside(released: Iterable[Object], live: Iterable[Object]) -> Iterable[Drift]:
    """Bounds that somebody moved."""
    now = {(o["kind"], o["metadata"]["name"]): o.get("spec", {}) for o in live}
    for manifest in released:
        key = manifest["kind"], manifest["metadata"]["name"]
        for field in WATCHED.get(manifest["kind"], ()) if key in now else ():
            asked = manifest["spec"].get(field, ABSENT)
            change = FieldChange(path=field, before=asked, after=now[key].get(field, ABSENT))
            if asked is not ABSENT and list(overwritten(asked, change.after)):
                yield Drift(component=" ".join(key), change=change)


def _managers(objects: list[Object], component: str) -> dict[str, str]:
    """Who set the component's replicas last; Helm's own hand is not named."""
    others = [m for o in objects for m in owners_of_replicas(o, component) if m != "helm"]
    return {"replicas": others[-1]} if others else {}


def owners_of_replicas(manifest: Object, component: str) -> list[str]:
    """The field managers that hold the component's replicas in this object, by managedFields."""
    entries = manifest["metadata"].get("managedFields") or ()
    return [str(e.get("manager")) for e in entries if _sets_replicas(manifest, e, component)]


def _sets_replicas(manifest: Object, entry: Mapping[str, Any], component: str) -> bool:
    fields = entry.get("fieldsV1", {}).get("f:spec", {})
    if manifest["kind"] == DGD:
        key = f'k:{{"name":"{component}"}}'
        return "f:replicas" in fields.get("f:components", {}).get(key, {})
    labels = manifest["metadata"].get("labels", {})
    return labels.get(COMPONENT) == component and "f:replicas" in fields
