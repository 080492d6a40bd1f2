"""Dynamo's operator: from a DynamoGraphDeployment over component deployments to Deployments.

As in the source of the recorded operator: the workers' templates have a common hash; a new hash
makes a new generation of components, which replaces all older ones pool by pool within the surge; a
spec whose hash is that of the generation that serves ends an update at once. Graphs with components
of several nodes have no such update, and their groups of pods are replaced one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.emulated_cluster import adapters, fields, groups, routing
from tests.support.emulated_cluster.deployments import digest, scaled
from tests.support.emulated_cluster.kubelet import Kubelet, reference_to
from tests.support.emulated_cluster.store import Object, Store, key_of

WORKERS = ("prefill", "decode", "worker")
HASH = "nvidia.com/current-worker-hash-v2"  # annotation: the generation that serves
GENERATION = "nvidia.com/dynamo-worker-hash"  # label
GRAPH_NAME = "nvidia.com/dynamo-graph-deployment-name"  # label
FINALIZER = "nvidia.com/finalizer"
SURGE = "nvidia.com/deployment-rolling-update-max-surge"
UNAVAILABLE = "nvidia.com/deployment-rolling-update-max-unavailable"
UNHASHED = ("name", "type", "replicas", "scalingAdapter", "modelRef")
MODIFIED = (
    "Failed to reconcile DynamoComponentDeployment: failed to set status condition and service "
    "replica status: failed to update DynamoComponentDeployment status: Operation cannot be "
    'fulfilled on dynamocomponentdeployments.nvidia.com "{}": the object has been modified; please '
    "apply your changes to the latest version and try again"
)


@dataclass
class Counts:
    """Pods of one pool in some generations: declared, and available."""

    spec: int = 0
    available: int = 0


def reconcile(store: Store, kubelet: Kubelet, graph: Object) -> None:
    """Run the graph's controller once."""
    meta = graph["metadata"]
    if "deletionTimestamp" in meta:
        store.remove(key_of(graph))
    elif "finalizers" not in meta:
        _write(store, graph, {**graph, "metadata": {**meta, "finalizers": [FINALIZER]}})
    elif any("multinode" in c for c in graph["spec"]["components"]):
        groups.reconcile_graph(store, kubelet, graph, _worker_hash(graph))
    elif HASH not in meta.get("annotations", {}):
        _write(store, graph, _with_hash(graph, _worker_hash(graph)))
    else:
        _reconcile_generations(store, kubelet, graph)


def reconcile_component(store: Store, kubelet: Kubelet, component: Object) -> None:
    """Run the controller of one DynamoComponentDeployment once: its Deployment, its status."""
    meta, spec = component["metadata"], component["spec"]
    graph, generation = meta["labels"][GRAPH_NAME], meta["labels"].get(GENERATION, "")
    template = routing.with_variables(
        spec["podTemplate"], f"{meta['namespace']}-{graph}", generation
    )
    annotations = template.get("metadata", {}).get("annotations", {})
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"labels": meta["labels"], "ownerReferences": [reference_to(component)]},
        "spec": {
            "replicas": spec["replicas"],
            "template": template,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": annotations.get(SURGE, "25%"),
                    "maxUnavailable": annotations.get(UNAVAILABLE, "25%"),
                },
            },
        },
    }
    key = ("apps/v1", "deployments", meta["namespace"], meta["name"])
    live = store.objects.get(key)
    if live is None:
        kubelet.warn(component, "ReconcileError", MODIFIED.format(meta["name"]))
    elif live["spec"] != deployment["spec"]:
        deployment = {**live, "spec": deployment["spec"]}
    else:
        deployment = fields.copied(live)
    written = store.write(key, deployment, trusted=True)
    counts = written.get("status") or {}
    current = counts.get("observedGeneration") == written["metadata"]["generation"]
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    number = {name: counts.get(name, 0) for name in names}
    done = current and all(count == spec["replicas"] for count in number.values())
    status = {
        "observedGeneration": meta["generation"],
        "component": {"componentKind": "Deployment", "componentNames": [meta["name"]], **number},
        "conditions": [{"type": "Available", "status": str(done)}],
    }
    store.set_status(component, status)


def _reconcile_generations(store: Store, kubelet: Kubelet, graph: Object) -> None:
    target = _worker_hash(graph)
    rolling = dict((graph.get("status") or {}).get("rollingUpdate") or {})
    if graph["metadata"]["annotations"][HASH] != target or _is_in_progress(rolling):
        rolling, is_complete = _advance(store, graph, target, rolling)
        if is_complete:
            for component in _older(store, graph, target):
                store.remove(key_of(component))
            graph = _write(store, graph, _with_hash(graph, target))
    current = graph["metadata"]["annotations"][HASH]
    targets = None if current == target else _targets(store, graph, target)
    components = [
        _sync(store, graph, spec, target, targets[0] if targets else {})
        for spec in graph["spec"]["components"]
    ]
    for component in _older(store, graph, target) if targets else ():
        replicas = targets[1][component["metadata"]["name"]] if targets else 0
        if component["spec"]["replicas"] != replicas:
            component["spec"]["replicas"] = replicas
            store.write(key_of(component), component, trusted=True)
    _write_status(store, graph, components, target, rolling)


def _is_in_progress(rolling: Object) -> bool:
    return rolling.get("phase") in ("Pending", "InProgress")


def _advance(store: Store, graph: Object, target: str, rolling: Object) -> tuple[Object, bool]:
    """The next status of the update, and whether it is complete now."""
    is_current = graph["metadata"]["annotations"][HASH] == target
    workers = sorted(c["name"] for c in graph["spec"]["components"] if c["type"] in WORKERS)
    updated = _updated(store, graph, target)
    phase = rolling.get("phase")
    if phase == "Completed" and not is_current:
        phase, rolling = None, {}
    if phase == "InProgress" and (is_current or updated == workers):
        # The operator calls an update to the serving generation stuck.
        ended = {"endTime": "2026-11-22T00:00:00Z", "phase": "Completed"}
        return {**rolling, **ended, "updatedComponents": workers}, True
    match phase:
        case None:
            return {"phase": "Pending", "startTime": "2026-11-22T00:00:00Z"}, False
        case "Pending":
            return {**rolling, "phase": "InProgress"}, False
        case "InProgress":
            done = {"updatedComponents": updated} if updated else {}
            return {**rolling, **done}, False
    return rolling, False


def _updated(store: Store, graph: Object, target: str) -> list[str]:
    """Pools that are ready in the new generation, and not in an older one."""
    older, newer = _older(store, graph, target), _of_hash(store, graph, target)
    return sorted(
        c["name"]
        for c in graph["spec"]["components"]
        if c["type"] in WORKERS
        and _counts(newer, c["name"]).available >= c.get("replicas", 1)
        and not _counts(older, c["name"]).available
    )


def _targets(store: Store, graph: Object, target: str) -> tuple[dict[str, int], dict[str, int]]:
    """The replicas of the new generation by pool, and of every older component by its name."""
    older, newer = _older(store, graph, target), _of_hash(store, graph, target)
    of_new, of_old = {}, {}
    for spec in graph["spec"]["components"]:
        if spec["type"] not in WORKERS:
            continue
        name, desired = spec["name"], spec.get("replicas", 1)
        surge, unavailable = _limits(spec, desired)
        old, new = _counts(older, name), _counts(newer, name)
        least = desired - unavailable
        removable = max(0, old.spec + new.spec - least - max(0, new.spec - new.available))
        unready = max(0, old.spec - old.available)
        surplus = max(0, old.available + new.available - least)
        left = max(0, old.spec - min(removable, unready + surplus))
        of_new[name] = min(desired, new.spec + max(0, desired + surge - old.spec - new.spec))
        of_old |= _share([c for c in older if c["spec"]["name"] == name], left)
    return of_new, of_old


def _share(older: list[Object], total: int) -> dict[str, int]:
    """Replicas of each older component: unready ones go first, then the oldest generation's."""
    share = {c["metadata"]["name"]: min(c["spec"]["replicas"], _available(c)) for c in older}
    for component in older:
        removed = min(share[component["metadata"]["name"]], max(0, sum(share.values()) - total))
        share[component["metadata"]["name"]] -= removed
    for component in reversed(older):
        name = component["metadata"]["name"]
        unready = component["spec"]["replicas"] - share[name]
        share[name] += min(unready, max(0, total - sum(share.values())))
    return share


def _limits(spec: Object, replicas: int) -> tuple[int, int]:
    annotations = spec.get("podTemplate", {}).get("metadata", {}).get("annotations", {})
    surge = scaled(annotations.get(SURGE, "25%"), replicas, up=True)
    unavailable = scaled(annotations.get(UNAVAILABLE, "25%"), replicas, up=False)
    return (surge if surge or unavailable else 1), unavailable


def _sync(
    store: Store, graph: Object, spec: Object, target: str, targets: dict[str, int]
) -> Object:
    """Write the component of the current generation."""
    meta = graph["metadata"]
    name = f"{meta['name']}-{spec['name']}"
    replicas = spec.get("replicas", 1)
    template = spec["podTemplate"]
    labels = {GRAPH_NAME: meta["name"]}
    if spec["type"] in WORKERS:
        name = f"{name}-{target}"
        replicas = targets.get(spec["name"], replicas)
        labels[GENERATION] = target
    inner = template.get("metadata", {})
    labelled = {**inner, "labels": {**inner.get("labels", {}), **labels}}
    component = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoComponentDeployment",
        "metadata": {"labels": labelled["labels"], "ownerReferences": [reference_to(graph)]},
        "spec": {
            "name": spec["name"],
            "type": spec["type"],
            "replicas": replicas,
            "podTemplate": {**template, "metadata": labelled},
        },
    }
    key = ("nvidia.com/v1beta1", "dynamocomponentdeployments", meta["namespace"], name)
    live = store.objects.get(key)
    return store.write(key, {**(live or component), "spec": component["spec"]}, trusted=True)


def _write_status(
    store: Store, graph: Object, components: list[Object], target: str, rolling: Object
) -> None:
    generation = graph["metadata"]["generation"]
    reasons = [f"{c['metadata']['name']}: {r}" for c in components if (r := _not_ready(c))]
    message = f"Resources not ready: {'; '.join(sorted(reasons))}"
    done, reason = not reasons, "some_resources_are_not_ready"
    if done:
        message, reason = "All resources are ready", "all_resources_are_ready"
    if _is_in_progress(rolling):
        done, reason, message = False, "rolling_update_in_progress", "Rolling update in progress"
    older = _older(store, graph, target)
    ready = {
        "type": "Ready",
        "status": str(done),
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }
    status: Object = {
        "observedGeneration": generation,
        "state": "successful" if done else "pending",
        "conditions": [ready],
        "components": {c["spec"]["name"]: _merged(c, older) for c in components},
    }
    if rolling:
        status["rollingUpdate"] = rolling
    store.set_status(store.objects[key_of(graph)], status)


def _not_ready(component: Object) -> str:
    generation = component["metadata"]["generation"]
    status = component.get("status") or {}
    observed = status.get("observedGeneration", 0)
    if observed < generation:
        return f"spec not yet processed: generation={generation}, observedGeneration={observed}"
    if any(c["status"] != "True" for c in status["conditions"]):
        return "Component deployment not ready - Available condition not true"
    return ""


def _merged(component: Object, older: list[Object]) -> Object:
    """The counts of a pool over all its generations; only new pods count as updated."""
    status = component.get("status") or {}
    merged = dict(status.get("component") or {"componentKind": "Deployment", "componentNames": []})
    for other in older:
        counts = (other.get("status") or {}).get("component")
        if other["spec"]["name"] != component["spec"]["name"] or counts is None:
            continue
        for name in ("replicas", "readyReplicas", "availableReplicas"):
            merged[name] = merged.get(name, 0) + counts[name]
        merged["componentNames"] = sorted((*merged["componentNames"], *counts["componentNames"]))
    return merged


def _of_hash(store: Store, graph: Object, target: str) -> list[Object]:
    components = store.of_kind("DynamoComponentDeployment", graph)
    return [c for c in components if c["metadata"]["labels"].get(GENERATION) == target]


def _older(store: Store, graph: Object, target: str) -> list[Object]:
    """The components of all other generations, oldest first."""
    components = store.of_kind("DynamoComponentDeployment", graph)
    return [c for c in components if c["metadata"]["labels"].get(GENERATION, target) != target]


def _counts(components: list[Object], pool: str) -> Counts:
    of_pool = [c for c in components if c["spec"]["name"] == pool]
    return Counts(sum(c["spec"]["replicas"] for c in of_pool), sum(map(_available, of_pool)))


def _available(component: Object) -> int:
    status = component.get("status") or {}
    return int((status.get("component") or {}).get("availableReplicas", 0))


def _worker_hash(graph: Object) -> str:
    spec = graph["spec"]
    workers = {
        c["name"]: {k: v for k, v in c.items() if k not in UNHASHED}
        for c in spec["components"]
        if c["type"] in WORKERS
    }
    return digest([workers, spec.get("backendFramework"), spec.get("env")], 8)


def _with_hash(graph: Object, worker_hash: str) -> Object:
    meta = graph["metadata"]
    annotations = {**meta.get("annotations", {}), HASH: worker_hash}
    return {**graph, "metadata": {**meta, "annotations": annotations}}


def _write(store: Store, graph: Object, updated: Object) -> Object:
    """The operator's own PUT."""
    updated = fields.update(graph, updated, adapters.OPERATOR)
    return fields.copied(store.write(key_of(graph), updated, trusted=True))
