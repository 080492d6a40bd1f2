"""How far a roll-out is: counts by pool, and whether the cluster holds what was asked for.

Pure. A status counts only for the generation that it was written for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.cluster.compare import without_secrets
from penstock.cluster.diagnose import Diagnosis, restarts, troubles
from penstock.cluster.workloads import (
    COMPONENT,
    DGD,
    GROUPED,
    PLAIN,
    POD_COMPONENT,
    Object,
    workloads,
)
from penstock.manifests.scalers import Scaler

# Autoscalers' conditions, and what each of them is when all is well.
SCALERS = {
    "HorizontalPodAutoscaler": (("AbleToScale", "True"), ("ScalingActive", "True")),
    "ScaledObject": (("Ready", "True"), ("Paused", "False")),
}
LOADS = (DGD, PLAIN, GROUPED, "StatefulSet")


@dataclass(frozen=True, kw_only=True)
class PoolStatus:
    """Replicas of one component: asked for, there, of the newest spec, and ready."""

    name: str
    desired: int
    replicas: int
    updated: int
    ready: int
    restarts: int
    gpus: int  # of one replica
    scaler: Scaler | None = None  # what owns the number, where the graph does not

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
class Progress:
    """``waits_for``: what the operator says is missing, while something is; ``unseen``: what the
    user may not list, so that troubles may be missing; ``generation``: the graph's and the one that
    its operator has seen, zeros where there is no graph."""

    pools: tuple[PoolStatus, ...]
    is_done: bool
    waits_for: str
    generation: tuple[int, int]
    unseen: tuple[str, ...]
    troubles: tuple[Diagnosis, ...]

    def __str__(self) -> str:
        pools = ", ".join(str(pool) for pool in self.pools)
        return pools if self.is_done or not self.waits_for else f"{pools}; {self.waits_for}"


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the cluster holds: the release's objects, its pods (those in ``old`` by uid were there
    before), and events. ``unseen``: kinds that may not be listed."""

    release: str
    live: tuple[Object, ...]
    pods: tuple[Object, ...]
    events: tuple[Object, ...]
    old: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()


def rollout(asked: Iterable[Object], seen: Observed) -> Progress:
    """``asked``: the release's manifests."""
    wanted = workloads(asked)
    loads = [o for o in seen.live if o["kind"] in LOADS]
    missing = [name for name in wanted if name not in _components(loads)]
    pools = tuple(
        replace(pool, scaler=wanted[pool.name].scaler) if pool.name in wanted else pool
        for o in loads
        for pool in _pools(o, list(seen.pods))
    )
    waits = [f"no {name} yet" for name in missing] + [w for o in loads if (w := _waits(o))]
    is_done = not waits and bool(loads) and all(pool.is_done for pool in pools)
    found = troubles(seen.pods, () if is_done else seen.events, seen.release, seen.old)
    return Progress(
        pools=pools,
        is_done=is_done,
        waits_for="; ".join(waits),
        generation=next((_generation(o) for o in loads if o["kind"] == DGD), (0, 0)),
        unseen=seen.unseen,
        troubles=(*(t for o in seen.live for t in _of_object(o)), *found),
    )


def _components(loads: list[Object]) -> set[str]:
    return set(workloads(loads)) | {_component(o) for o in loads if o["kind"] == "StatefulSet"}


def _component(manifest: Object) -> str:
    return str((manifest["metadata"].get("labels") or {}).get(COMPONENT, ""))


def _pools(manifest: Object, pods: list[Object]) -> Iterable[PoolStatus]:
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
) -> PoolStatus:
    own = [p for p in pods if (p["metadata"].get("labels") or {}).get(POD_COMPONENT) == name]
    # Grove's groups have no readyReplicas, and a PodClique no availableReplicas.
    ready = counts.get("readyReplicas", counts.get("availableReplicas", 0))
    return PoolStatus(
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
    generation, seen = _generation(manifest)
    what = "the operator" if manifest["kind"] == DGD else "the cluster"
    ready = _ready_condition(manifest)
    if ready and ready["status"] != "True" and not _is_of_before(manifest):
        return str(ready.get("message") or ready.get("reason") or "not ready")
    if manifest["kind"] == GROUPED:  # whose status names no generation
        return _waits_group(status)
    if seen < generation:
        return f"{what} has not seen it yet"
    if manifest["kind"] != DGD:
        return ""
    if (status.get("rollingUpdate") or {}).get("phase") in ("Pending", "InProgress"):
        return "rolling update"
    if ready is None or _is_of_before(manifest):
        return f"{what} has not judged it yet"
    return ""


def _waits_group(status: Mapping[str, Any]) -> str:
    found = {c["type"]: c for c in status.get("conditions") or ()}
    if (found.get("UpdateInProgress") or {}).get("status") == "True":
        return "rolling update"
    available = found.get("Available")
    if available is None:
        return "the cluster has not judged it yet"
    return "" if available["status"] == "True" else str(available.get("message") or "not ready")


def _generation(manifest: Object) -> tuple[int, int]:
    seen = (manifest.get("status") or {}).get("observedGeneration")
    return int(manifest["metadata"].get("generation", 0)), int(seen or 0)


def _ready_condition(manifest: Object) -> Mapping[str, Any] | None:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    if manifest["kind"] != DGD:
        return None
    return next((c for c in conditions if c["type"] == "Ready"), None)


def _is_of_before(manifest: Object) -> bool:
    """Whether the Ready condition was written for an older generation. The operator raises the
    status' own observedGeneration only where reconciling succeeds, so the condition's goes first.
    """
    status = manifest.get("status") or {}
    ready = _ready_condition(manifest) or {}
    of = ready.get("observedGeneration", status.get("observedGeneration", 0))
    return int(of or 0) < int(manifest["metadata"].get("generation", 0))


def _of_object(manifest: Object) -> Iterator[Diagnosis]:
    """What the operator, or a Job, says of itself. The operator's errors may pass: conflicts of
    writers, webhooks that are away."""
    status = manifest.get("status") or {}
    name = str(manifest["metadata"]["name"])
    failed = (status.get("rollingUpdate") or {}).get("phase") == "Failed"
    if manifest["kind"] == DGD and (status.get("state") == "failed" or failed):
        ready = _ready_condition(manifest) or {}
        if ready.get("observedGeneration") is None or not _is_of_before(manifest):
            words = str(ready.get("message") or ready.get("reason") or "state is failed")
            yield _final(f"graph {name}", "the operator fails", words)
    for kind, good in SCALERS.get(manifest["kind"], ()):
        for condition in status.get("conditions") or ():
            if condition["type"] == kind and condition["status"] not in (good, "Unknown"):
                words = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                yield Diagnosis(
                    component=f"{manifest['kind']} {name}",
                    pod="",
                    what="does not scale",
                    words=without_secrets(words),
                    is_final=False,
                )
    if manifest["kind"] == "Job":
        for condition in status.get("conditions") or ():
            if condition["type"] == "Failed" and condition["status"] == "True":
                words = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                yield _final(f"Job {name}", "failed", words)


def _final(component: str, what: str, words: str) -> Diagnosis:
    cleaned = without_secrets(words)
    return Diagnosis(component=component, pod="", what=what, words=cleaned, is_final=True)
