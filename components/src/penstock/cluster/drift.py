"""Drift: fields on the cluster that differ from the release, after an edit or by an autoscaler.

Pure. What the release would be on the cluster is the API server's own response to a dry run, so
that its defaults, and what controllers set, are no drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cluster.compare import FieldChange, differences, overwritten
from penstock.cluster.ownership import HELM, other_managers
from penstock.cluster.workloads import (
    COMPONENT,
    DGD,
    Object,
    key_of,
    outside_the_pods,
    workloads,
)

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


def drift(
    released: Iterable[Object],
    live: Iterable[Object],
    expected: Iterable[Object] = (),
    manager: str = HELM,
) -> tuple[Drift, ...]:
    """Compare the release with the live objects.

    ``expected``: what the live objects would be after an apply of the release by ``manager``. Of a
    component that is not among them, fields that only ``live`` has are ignored; other objects are
    not compared.
    """
    released_objects, live_objects, expected_objects = list(released), list(live), list(expected)
    entries = []
    live_workloads = workloads(live_objects)
    expected_workloads = workloads(expected_objects)
    for name, declared in workloads(released_objects).items():
        if name not in live_workloads:
            continue
        managers = _managers(live_objects, name, manager)
        spec = live_workloads[name].spec
        if name in expected_workloads:
            changes = [*differences(expected_workloads[name].spec, spec)]
        else:
            changes = [*overwritten(declared.spec, spec)]
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
                    manager=managers.get(change.path, managers.get("")) or "",
                    is_corrected_by_apply=declared.scaler is None or change.path != "replicas",
                )
            )
    return (
        *entries,
        *_outside_the_pods(released_objects, live_objects, expected_objects, manager),
    )


def _outside_the_pods(
    released: Iterable[Object],
    live: Iterable[Object],
    expected: Iterable[Object],
    manager: str,
) -> Iterable[Drift]:
    by_name = {key_of(o): o for o in live}
    declared = {key_of(o): o for o in released}
    for manifest in expected:
        key = key_of(manifest)
        found, own = by_name.get(key), declared.get(key)
        if found is None or own is None:
            continue
        for change in differences(_content(manifest, own), _content(found, own)):
            others = other_managers(found, manager)
            yield Drift(component=" ".join(key), change=change, manager=others)


def _content(manifest: Object, declared: Object) -> Mapping[str, Any]:
    """What `drift` does not compare by component; of the metadata what the release declares."""
    if manifest["kind"] == "ConfigMap":  # in components, and immutable
        return {}
    rest = outside_the_pods(manifest)
    for field in ("labels", "annotations"):
        values, own = (o["metadata"].get(field) or {} for o in (manifest, declared))
        rest[field] = {k: v for k, v in values.items() if k in own}
    return rest


def _managers(objects: list[Object], component: str, manager: str) -> dict[str, str]:
    """The last field manager of the component's replicas other than ``manager``; under "" those of
    fields that were added."""
    found = {}
    for manifest in objects:
        if component in workloads([manifest]):
            found[""] = other_managers(manifest, manager)
            if others := [m for m in replica_managers(manifest, component) if m != manager]:
                found["replicas"] = others[-1]
    return found


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
