"""Dynamo's scaling adapters on the emulated API, and the webhook that protects their replicas.

As in the source of operator 1.6: an adapter starts with the graph's number of replicas and then
writes it to the graph; no other client may change that number, and a missing number is 1.
"""

from __future__ import annotations

from tests.support.emulated_cluster import fields
from tests.support.emulated_cluster.fields import Manager
from tests.support.emulated_cluster.store import ApiError, Object, Store

KIND = "DynamoGraphDeploymentScalingAdapter"
OPERATOR = Manager("dynamo-operator", "Update", "nvidia.com/v1beta1")


def admit(new: Object, old: Object | None) -> None:
    """The webhook: fills in the number, and rejects a change of one that an adapter owns."""
    if new.get("kind") != "DynamoGraphDeployment":
        return
    for component in new["spec"]["components"]:
        component.setdefault("replicas", 1)
    before = {c["name"]: c for c in old["spec"]["components"]} if old else {}
    names = [c["name"] for c in new["spec"]["components"]]
    if old and set(names) != before.keys():
        _reject(new, "spec.components", "component topology is immutable")
    for component in new["spec"]["components"]:
        was = before.get(component["name"], component)
        owned = "scalingAdapter" in component or "scalingAdapter" in was
        if owned and was.get("replicas", 1) != component["replicas"]:
            _reject(
                new,
                f"spec.components[{names.index(component['name'])}].replicas",
                "cannot be modified directly when scaling adapter is enabled; scale or update the "
                "related DynamoGraphDeploymentScalingAdapter instead",
            )


def _reject(graph: Object, field: str, message: str) -> None:
    text = (
        'admission webhook "vdynamographdeployment.kb.io" denied the request: '
        f'{graph["kind"]}.nvidia.com "{graph["metadata"]["name"]}" is invalid: '
        f"{field}: Forbidden: {message}"
    )
    cause = {"field": field, "message": message}
    raise ApiError(422, "Invalid", text, {"causes": [cause]})


def reconcile(store: Store, graph: Object) -> None:
    """Run both controllers once for one graph."""
    meta = graph["metadata"]
    updated = fields.copied(graph)
    for component in updated["spec"]["components"]:
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
    if updated["spec"] != graph["spec"]:
        where = ("nvidia.com/v1beta1", "dynamographdeployments", meta["namespace"], meta["name"])
        store.write(where, fields.update(graph, updated, OPERATOR), trusted=True)
