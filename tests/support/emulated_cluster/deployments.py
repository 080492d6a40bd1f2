"""The controllers of Deployments and ReplicaSets, as in Kubernetes' own controller manager.

Rolling updates count declared replicas, scale the newest ReplicaSet up within the surge and the
older ones down within what may be unavailable; unready pods go first.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from tests.support.emulated_cluster.kubelet import Kubelet, is_ending, is_ready, reference_to
from tests.support.emulated_cluster.store import Object, Store, key_of

MOST = "deployment.kubernetes.io/max-replicas"
ASKED = "deployment.kubernetes.io/desired-replicas"


def digest(content: Any, length: int = 10) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:length]


def scaled(value: Any, total: int, *, up: bool) -> int:
    """A number, or a percentage of ``total``."""
    if not str(value).endswith("%"):
        return int(value)
    share = int(str(value)[:-1]) * total / 100
    return math.ceil(share) if up else math.floor(share)


def reconcile_replica_set(store: Store, kubelet: Kubelet, replica_set: Object) -> None:
    """One step of a ReplicaSet: as many pods as it declares, and its counts."""
    pods = [p for p in store.of_kind("Pod", replica_set) if not is_ending(p)]
    desired = replica_set["spec"]["replicas"]
    name = replica_set["metadata"]["name"]
    for _ in range(desired - len(pods)):
        kubelet.make(replica_set, name, replica_set["spec"]["template"], {})
    newest_first = pods[::-1]
    for pod in sorted(newest_first, key=is_ready)[: max(0, len(pods) - desired)]:
        kubelet.delete(pod)
        pods.remove(pod)
    ready = sum(map(is_ready, pods))
    store.set_status(replica_set, {"replicas": desired, "readyReplicas": ready})


def reconcile_deployment(store: Store, deployment: Object) -> None:
    """One step of a Deployment."""
    spec = deployment["spec"]
    template = spec["template"]
    sets = store.of_kind("ReplicaSet", deployment)
    hashed = digest(template)
    newest = next((s for s in sets if s["metadata"]["labels"]["pod-template-hash"] == hashed), None)
    replicas = spec.get("replicas", 1)
    surge, unavailable = _limits(spec, replicas)
    if newest is None:
        newest = _make(store, deployment, hashed, template)
        sets.append(newest)
    older = [s for s in sets if s is not newest]
    asked = [s["metadata"]["annotations"].get(ASKED) for s in sets if s["spec"]["replicas"]]
    if asked and any(a not in (None, str(replicas)) for a in asked):
        _scale_all(sets, newest, replicas, replicas + surge if older else replicas)
    elif not older or not any(s["spec"]["replicas"] for s in older):
        newest["spec"]["replicas"] = replicas
    else:
        _replace(newest, older, replicas, surge, unavailable)
    for each in sets:
        annotations = {ASKED: str(replicas), MOST: str(replicas + surge)}
        each["metadata"]["annotations"] |= annotations
        if not each["spec"]["replicas"] and not each["status"]["replicas"] and each is not newest:
            store.remove(key_of(each))  # a real one keeps ten of them
        else:
            store.write(key_of(each), each, trusted=True)
    store.set_status(deployment, _status(deployment, sets, newest, replicas))


def _limits(spec: Object, replicas: int) -> tuple[int, int]:
    limits = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    surge = scaled(limits.get("maxSurge", "25%"), replicas, up=True)
    unavailable = scaled(limits.get("maxUnavailable", "25%"), replicas, up=False)
    return surge, unavailable if surge or unavailable else 1


def _make(store: Store, deployment: Object, hashed: str, template: Object) -> Object:
    meta = deployment["metadata"]
    labels = {**template.get("metadata", {}).get("labels", {}), "pod-template-hash": hashed}
    labelled = {**template, "metadata": {**template.get("metadata", {}), "labels": labels}}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "labels": labels,
            "annotations": {},
            "ownerReferences": [reference_to(deployment)],
        },
        "spec": {"replicas": 0, "template": labelled},
        "status": {"replicas": 0, "readyReplicas": 0},
    }
    key = ("apps/v1", "replicasets", meta["namespace"], f"{meta['name']}-{hashed}")
    return store.write(key, replica_set, trusted=True)


def _scale_all(sets: list[Object], newest: Object, replicas: int, most: int) -> None:
    """A change of the number: in proportion if several ReplicaSets have pods, the largest first;
    of equal ones the newest is scaled up first, and the oldest down. ``sets``: oldest first."""
    active = [s for s in sets if s["spec"]["replicas"]]
    if len(active) <= 1:
        (active or [newest])[0]["spec"]["replicas"] = replicas
        return
    to_add = most - sum(s["spec"]["replicas"] for s in active)
    left = to_add
    ordered = sorted(
        active[::-1] if to_add > 0 else active, key=lambda s: s["spec"]["replicas"], reverse=True
    )
    for each in ordered:
        before = each["spec"]["replicas"]
        annotated = int(each["metadata"]["annotations"].get(MOST, most))
        share = round(before * most / annotated) - before
        share = max(0, min(share, left)) if to_add > 0 else min(0, max(share, left))
        each["spec"]["replicas"] = before + share
        left -= share
    ordered[0]["spec"]["replicas"] = max(0, ordered[0]["spec"]["replicas"] + left)


def _replace(
    newest: Object, older: list[Object], replicas: int, surge: int, unavailable: int
) -> None:
    """Up first; a step that scales up does not scale down."""
    declared = newest["spec"]["replicas"]
    total = declared + sum(s["spec"]["replicas"] for s in older)
    if declared > replicas:
        newest["spec"]["replicas"] = replicas
        return
    if added := max(0, min(replicas + surge - total, replicas - declared)):
        newest["spec"]["replicas"] = declared + added
        return
    least = replicas - unavailable
    missing = max(0, declared - newest["status"]["readyReplicas"])
    removable = total - least - missing
    for each in older:  # unready pods first, oldest ReplicaSet first
        unready = each["spec"]["replicas"] - each["status"]["readyReplicas"]
        removed = max(0, min(unready, removable))
        each["spec"]["replicas"] -= removed
        removable -= removed
    ready = newest["status"]["readyReplicas"]
    ready += sum(min(s["status"]["readyReplicas"], s["spec"]["replicas"]) for s in older)
    surplus = min(ready - least, removable)
    for each in older:
        removed = max(0, min(each["spec"]["replicas"], surplus))
        each["spec"]["replicas"] -= removed
        surplus -= removed


def _status(deployment: Object, sets: list[Object], newest: Object, replicas: int) -> Object:
    ready = sum(s["status"]["readyReplicas"] for s in sets)
    counted = sum(s["status"]["replicas"] for s in sets)
    limit = replicas - _limits(deployment["spec"], replicas)[1]
    enough = ready >= limit
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": counted,
        "updatedReplicas": newest["status"]["replicas"],
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, counted - ready),
        "conditions": [
            {
                "type": "Available",
                "status": str(enough),
                "reason": f"MinimumReplicas{'Available' if enough else 'Unavailable'}",
            }
        ],
    }
