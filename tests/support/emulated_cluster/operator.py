"""The controllers of the emulated cluster: Dynamo's operator, Kubernetes' own, the kubelets.

A state machine. A command in this process steps it while it waits, on a virtual clock. If a test
starts other processes, a thread steps it in real time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from penstock.cluster.rollout import Clock
from tests.support.emulated_cluster import adapters, deployments, fields, graphs, groups
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.kubelet import Kubelet, Machine, is_ending, is_ready
from tests.support.emulated_cluster.requests import webhook_error
from tests.support.emulated_cluster.store import Object, Store, key_of

COMPONENT = "penstock/component"
GRAPH = "DynamoGraphDeployment"
# What an owner's end deletes, from the owner down.
OWNED = ("DynamoComponentDeployment", "Deployment", "ReplicaSet", "Pod")
WEBHOOK = "dynamo-operator-webhook.dynamo-system.svc:443"
STEP_S = 1.0  # of the virtual clock


class VirtualClock(Clock):
    """Waiting steps the controllers once per virtual second, and takes no time."""

    def __init__(self, operator: Operator) -> None:
        self._operator, self._now = operator, 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        before, self._now = self._now, self._now + seconds
        for _ in range(int(self._now // STEP_S) - int(before // STEP_S)):
            self._operator.step()


@dataclass
class Operator:
    """``serving``: ready pods of each step; ``admitted``: of workers, those to which every ready
    frontend routes."""

    api: ApiServer
    machine: Machine = field(default_factory=Machine)
    serving: list[dict[str, int]] = field(default_factory=list)
    admitted: list[dict[str, int]] = field(default_factory=list)
    # Whether Dynamo's operator and its webhooks are down; Kubernetes' controllers go on.
    is_away: bool = False
    clock: VirtualClock = field(init=False)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    # The version of the store, and is_away, with which the controllers have nothing to do.
    _settled: tuple[int, bool] | None = None

    def __post_init__(self) -> None:
        self.kubelet = Kubelet(self.store, self.api.logs, self.machine)
        self.clock = VirtualClock(self)
        self.store.admission.append(self._admit)
        self.api.answer = self._answer

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step_in_background(self) -> None:
        """From now on, for processes and threads that wait in real time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the operator and the other controllers."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.03):
            self.step()

    @property
    def store(self) -> Store:
        return self.api.store

    def _admit(self, new: Object, old: Object | None) -> None:
        if self.is_away and new.get("kind") == GRAPH:
            raise webhook_error(WEBHOOK)
        adapters.admit(new, old)

    def _answer(self, pod: Object, path: str) -> tuple[int, str] | None:
        with self.store.lock:
            return self.kubelet.routing.answer(pod, path)

    def step(self) -> None:
        """Run every controller once, unless nothing has changed since they had nothing to do; and
        every pod for one step."""
        store = self.store
        if self._ended.is_set():
            return
        with store.lock:
            seen = (store.version, self.is_away)
            if seen != self._settled:
                self._reconcile()
                self._settled = seen if store.version == seen[0] else None
            self.kubelet.routing.now += 1
            for pod in store.of_kind("Pod"):
                self.kubelet.step(pod)
            ready: dict[str, int] = {}
            for pod in store.of_kind("Pod"):
                name = (pod["metadata"].get("labels") or {}).get(COMPONENT, "")
                ready[name] = ready.get(name, 0) + (is_ready(pod) and not is_ending(pod))
            self.serving.append(ready)
            self.admitted.append(self.kubelet.routing.admitted(is_ready))

    def _reconcile(self) -> None:
        store, kubelet = self.store, self.kubelet
        if not self.is_away:
            for graph in store.of_kind(GRAPH):
                adapters.reconcile(store, graph)
            for graph in store.of_kind(GRAPH):
                graphs.reconcile(store, kubelet, graph)
            for component in store.of_kind("DynamoComponentDeployment"):
                graphs.reconcile_component(store, kubelet, component)
        self._collect()
        for deployment in store.of_kind("Deployment"):
            deployments.reconcile_deployment(store, deployment)
        for replica_set in store.of_kind("ReplicaSet"):
            deployments.reconcile_replica_set(store, kubelet, replica_set)
        for kind in ("StatefulSet", "LeaderWorkerSet"):
            for manifest in store.of_kind(kind):
                groups.reconcile_set(store, kubelet, manifest)

    def lowest(self, component: str, since: int = 0) -> int:
        """The fewest ready pods that the component had in any step."""
        return min(ready.get(component, 0) for ready in self.serving[since:])

    def _collect(self) -> None:
        """Delete what the end of an owner leaves."""
        for kind in OWNED:
            uids = {o["metadata"]["uid"] for o in self.store.objects.values()}
            orphans = [
                o
                for o in self.store.objects.values()
                if o["kind"] == kind
                and (owners := o["metadata"].get("ownerReferences"))
                and not any(owner["uid"] in uids for owner in owners)
            ]
            for manifest in orphans:
                if kind != "Pod":
                    self.store.remove(key_of(manifest))
                elif not is_ending(manifest):
                    self.kubelet.delete(fields.copied(manifest))
