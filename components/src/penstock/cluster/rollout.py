"""How far a roll-out is: counts by pool, and whether the cluster holds what was asked for.

Pure. A status counts only for the generation that it was written for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cluster.compare import overwritten
from penstock.cluster.trouble import COMPONENT, Trouble, restarts, troubles
from penstock.cluster.workloads import CONFIG_FILE, DGD, Object, Workload, workloads

LOADS = ("DynamoGraphDeployment", "Deployment", "StatefulSet")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Replicas of one component: asked for, there, of the newest spec, and ready."""

    name: str
    desired: int
    replicas: int
    updated: int
    ready: int
    restarts: int
    gpus: int  # of one replica

    @property
    def is_done(self) -> bool:
        return self.desired == self.replicas == self.updated and self.ready >= self.desired

    def __str__(self) -> str:
        old = self.replicas - self.updated
        notes = [f"{old} old"] if old > 0 else []
        if self.desired > self.updated:
            notes.append(f"{self.updated} of {self.desired} new")
        return f"{self.name} {self.ready}/{self.desired} ready" + (
            f" ({', '.join(notes)})" if notes and not self.is_done else ""
        )


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """``waits_for``: what the operator says is missing, while something is."""

    pools: tuple[Pool, ...]
    is_done: bool
    waits_for: str
    has_failed: bool
    troubles: tuple[Trouble, ...]

    def __str__(self) -> str:
        pools = ", ".join(str(pool) for pool in self.pools)
        return pools if self.is_done or not self.waits_for else f"{pools}; {self.waits_for}"


def rollout(
    asked: Iterable[Object],
    live: Iterable[Object],
    pods: Iterable[Object],
    events: Iterable[Object],
) -> Rollout:
    """``asked``: the release's manifests; ``live``: the same objects as they are now."""
    there, running = list(live), list(pods)
    wanted = workloads(asked)
    loads = [o for o in there if o["kind"] in LOADS]
    missing = [name for name in wanted if name not in _components(loads)]
    pools = tuple(pool for o in loads for pool in _pools(o, running))
    current = [p for p in running if _is_of(p, wanted)]
    waits = [f"no {name} yet" for name in missing] + [w for o in loads if (w := _waits(o))]
    return Rollout(
        pools=pools,
        is_done=not waits and bool(loads) and all(pool.is_done for pool in pools),
        waits_for="; ".join(waits),
        has_failed=any(_has_failed(o) for o in loads),
        troubles=troubles(current, events),
    )


def _components(loads: list[Object]) -> set[str]:
    return set(workloads(loads)) | {_component(o) for o in loads if o["kind"] == "StatefulSet"}


def _component(manifest: Object) -> str:
    return str((manifest["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))


def _pools(manifest: Object, pods: list[Object]) -> Iterable[Pool]:
    status = manifest.get("status") or {}
    if manifest["kind"] == "StatefulSet":
        desired = int(manifest["spec"].get("replicas", 1))
        yield _pool(_component(manifest), desired, 0, status, pods)
        return
    for name, workload in workloads([manifest]).items():
        counts = status if manifest["kind"] != DGD else (status.get("components") or {}).get(name)
        yield _pool(name, workload.replicas, workload.gpus, counts or {}, pods)


def _pool(
    name: str, desired: int, gpus: int, counts: Mapping[str, Any], pods: list[Object]
) -> Pool:
    own = [p for p in pods if (p["metadata"].get("labels") or {}).get(COMPONENT) == name]
    # Grove's groups have no readyReplicas, and a PodClique no availableReplicas.
    ready = counts.get("readyReplicas", counts.get("availableReplicas", 0))
    return Pool(
        name=name,
        desired=desired,
        replicas=int(counts.get("replicas", 0)),
        updated=int(counts.get("updatedReplicas", 0)),
        ready=int(ready or 0),
        restarts=sum(map(restarts, own)),
        gpus=gpus,
    )


def _waits(manifest: Object) -> str:
    """Why it is not what its generation asks for; empty where it is."""
    status = manifest.get("status") or {}
    generation = manifest["metadata"].get("generation", 0)
    what = "the operator" if manifest["kind"] == DGD else "the cluster"
    if int(status.get("observedGeneration") or 0) < generation:
        return f"{what} has not seen it yet"
    if manifest["kind"] != DGD:
        return ""
    phase = (status.get("rollingUpdate") or {}).get("phase")
    if phase in ("Pending", "InProgress"):
        return "rolling update"
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready":
            if int(condition.get("observedGeneration") or generation) < generation:
                return f"{what} has not judged it yet"
            if condition["status"] == "True":
                return ""
            return str(condition.get("message") or condition.get("reason") or "not ready")
    return f"{what} has not judged it yet"


def _has_failed(manifest: Object) -> bool:
    status = manifest.get("status") or {}
    if int(status.get("observedGeneration") or 0) < manifest["metadata"].get("generation", 0):
        return False
    failed = (status.get("rollingUpdate") or {}).get("phase") == "Failed"
    return manifest["kind"] == DGD and (status.get("state") == "failed" or failed)


def _is_of(pod: Object, wanted: Mapping[str, Workload]) -> bool:
    """Whether the pod was made of what is asked for now, and not of what it replaces."""
    name = str((pod["metadata"].get("labels") or {}).get(COMPONENT))
    if name not in wanted:
        return True
    alone = {"kind": "Deployment", "metadata": {"labels": {"app.kubernetes.io/component": name}}}
    made = workloads([{**alone, "spec": {"template": {"spec": pod["spec"]}}}])[name]
    asked = wanted[name].spec
    told = {k: asked[k] for k in ("image", "args", "env") if k in asked}
    files = {(v.get("configMap") or {}).get("name") for v in pod["spec"].get("volumes", ())}
    return asked.get(CONFIG_FILE) in (None, *files) and not [*overwritten(told, made.spec)]
