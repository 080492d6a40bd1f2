"""Controllers of what is not a Deployment: StatefulSets, LeaderWorkerSets, multi-node graphs.

One pod stands for a group. One group more than desired starts before an old one stops.
"""

from __future__ import annotations

from tests.support.emulated_cluster import routing
from tests.support.emulated_cluster.deployments import digest
from tests.support.emulated_cluster.kubelet import Kubelet, is_ending, is_ready
from tests.support.emulated_cluster.store import Object, Store

COUNTS = ("replicas", "updatedReplicas", "readyReplicas")


def reconcile_set(store: Store, kubelet: Kubelet, manifest: Object) -> None:
    """One step of a StatefulSet or a LeaderWorkerSet."""
    spec = manifest["spec"]
    replicas = spec.get("replicas", 1)
    # Only the leader of a group: it is ready when the whole group is.
    template = spec.get("template") or spec["leaderWorkerTemplate"]["leaderTemplate"]
    name = manifest["metadata"]["name"]
    counts = _update(store, kubelet, manifest, name, replicas, template, digest(template))
    if manifest["kind"] == "LeaderWorkerSet":  # has no observedGeneration
        done = str(_is_done(counts, replicas))
        available = {"type": "Available", "status": done, "message": "not all ready"}
        status: Object = {**counts, "conditions": [available]}
    else:
        status = {
            "observedGeneration": manifest["metadata"]["generation"],
            "availableReplicas": counts["readyReplicas"],
            **counts,
        }
    store.set_status(manifest, status)


def reconcile_graph(store: Store, kubelet: Kubelet, graph: Object, worker_hash: str) -> None:
    """One step of a graph with a component of several nodes, as on Grove."""
    states, done = {}, True
    for component in graph["spec"]["components"]:
        replicas = component.get("replicas", 1)
        template = component["podTemplate"]
        is_worker = component["type"] in ("prefill", "decode", "worker")
        generation = worker_hash if is_worker else digest(template)
        name = f"{graph['metadata']['name']}-{component['name']}"
        namespace = f"{graph['metadata']['namespace']}-{graph['metadata']['name']}"
        suffix = generation if is_worker else ""
        template = routing.with_variables(template, namespace, suffix)
        counts = _update(store, kubelet, graph, name, replicas, template, generation)
        states[component["name"]] = {"componentKind": "PodCliqueScalingGroup", **counts}
        done = done and _is_done(counts, replicas)
    generation = graph["metadata"]["generation"]
    ready = {
        "type": "Ready",
        "status": str(done),
        "reason": "all_resources_are_ready" if done else "some_resources_are_not_ready",
        "observedGeneration": generation,
    }
    status = {
        "observedGeneration": generation,
        "state": "successful" if done else "pending",
        "conditions": [ready],
        "components": states,
    }
    store.set_status(graph, status)


def _is_done(counts: dict[str, int], replicas: int) -> bool:
    return all(counts[name] == replicas for name in COUNTS)


def _update(
    store: Store,
    kubelet: Kubelet,
    owner: Object,
    name: str,
    desired: int,
    template: Object,
    generation: str,
) -> dict[str, int]:
    """One step of a set of pods towards its replicas in its generation; returns its counts."""
    labels = {"group": name, "generation": generation}
    pods = [
        pod
        for pod in store.of_kind("Pod", owner)
        if pod["metadata"]["labels"].get("group") == name and not is_ending(pod)
    ]
    new = [p for p in pods if p["metadata"]["labels"]["generation"] == generation]
    old = [p for p in pods if p not in new]
    starts_pod = len(new) < desired and len(pods) < desired + bool(old)
    if starts_pod:
        kubelet.make(owner, f"{name}-{generation[:5]}", template, labels)
    for pod in sorted(new, key=is_ready)[: max(0, len(new) - desired)]:
        kubelet.delete(pod)
        new.remove(pod)
    # Pods that never served are deleted first, then surplus serving pods.
    serving = sum(map(is_ready, new + old))
    for pod in sorted(old, key=is_ready)[:1]:
        if not is_ready(pod) or serving > desired or desired == 0:
            kubelet.delete(pod)
            old.remove(pod)
    return {
        "replicas": len(new) + len(old) + starts_pod,
        "updatedReplicas": len(new) + starts_pod,
        "readyReplicas": sum(map(is_ready, new + old)),
    }
