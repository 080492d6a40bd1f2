"""Dynamo's scaling adapters over the emulated API, and the webhook that guards what they own.

What the operator's source says of 1.6: an adapter is seeded with the number when it is made,
and writes the graph from then on; nobody else may change that number, and one that is missing is 1.
"""

from __future__ import annotations

import copy

from tests.support.emulated_cluster import fields
from tests.support.emulated_cluster.api_server import Object, RefusedError, Store

KIND = "DynamoGraphDeploymentScalingAdapter"
OPERATOR = "dynamo-operator"


def admit(wanted: Object, old: Object | None) -> None:
    """The webhook: fills in the number, and refuses a change of one that an adapter owns."""
    if wanted.get("kind") != "DynamoGraphDeployment":
        return
    for component in wanted["spec"]["components"]:
        component.setdefault("replicas", 1)
    before = {c["name"]: c for c in old["spec"]["components"]} if old else {}
    names = [c["name"] for c in wanted["spec"]["components"]]
    if old and set(names) != before.keys():
        _refuse("spec.components", "component topology is immutable")
    for component in wanted["spec"]["components"]:
        was = before.get(component["name"], component)
        owned = "scalingAdapter" in component or "scalingAdapter" in was
        if owned and was.get("replicas", 1) != component["replicas"]:
            _refuse(
                f"spec.components[{names.index(component['name'])}].replicas",
                "cannot be modified directly when scaling adapter is enabled",
            )


def _refuse(field: str, message: str) -> None:
    cause = {"field": field, "message": message}
    raise RefusedError(422, "Invalid", f"{field}: Forbidden: {message}", [cause])


def reconcile(store: Store, graph: Object) -> None:
    """One step of both controllers for one graph."""
    meta = graph["metadata"]
    made = copy.deepcopy(graph)
    for component in made["spec"]["components"]:
        name = f"{meta['name']}-{component['name']}".lower()
        key = (
            "nvidia.com/v1beta1",
            "dynamographdeploymentscalingadapters",
            meta["namespace"],
            name,
        )
        if "scalingAdapter" not in component:
            if key in store.objects:
                store.remove(key)
        elif key not in store.objects:
            reference = {"name": meta["name"], "componentName": component["name"]}
            spec = {"replicas": component.get("replicas", 1), "dgdRef": reference}
            adapter = {"apiVersion": key[0], "kind": KIND, "metadata": {}, "spec": spec}
            store.write(key, adapter)
        else:
            component["replicas"] = store.objects[key]["spec"]["replicas"]
    if made["spec"] != graph["spec"]:
        where = ("nvidia.com/v1beta1", "dynamographdeployments", meta["namespace"], meta["name"])
        store.write(where, fields.update(graph, made, OPERATOR), trusted=True)
