"""What the emulated API does with single pods: eviction, exec, port-forward, and their nodes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.emulated_cluster.kubelet import is_ending, is_ready
from tests.support.emulated_cluster.store import ApiError, Key, Object, Store

BUDGETS = ("policy/v1", "poddisruptionbudgets")
PODS = ("v1", "pods")


def evict(store: Store, key: Key, body: Object) -> Object:
    """POST of an Eviction. Raises ApiError (429) as recorded."""
    with store.lock:
        if (body.get("metadata") or {}).get("name", key[3]) != key[3]:
            text = "name in URL does not match name in Eviction object"
            raise ApiError(400, "BadRequest", text)
        pod = store.existing(key)
        require_uid(pod, body.get("deleteOptions") or {})
        for budget in _budgets(store, key[2], pod):
            _require_allowed(store, budget)
        store.remove(key)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def require_uid(live: Object, options: Object) -> None:
    """Raises ApiError (409) if the options are about another object of the same name."""
    uid, actual = (options.get("preconditions") or {}).get("uid"), live["metadata"]["uid"]
    if uid not in (None, actual):
        text = f"the UID in the precondition ({uid}) does not match the UID in record ({actual})"
        raise ApiError(
            409, "Conflict", f"Operation cannot be fulfilled: Precondition failed: {text}"
        )


def _budgets(store: Store, namespace: str, pod: Object) -> Iterator[Object]:
    for key, budget in store.objects.items():
        if key[:3] == (*BUDGETS, namespace) and _matches(budget, pod):
            yield budget


def _matches(budget: Object, pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def _require_allowed(store: Store, budget: Object) -> None:
    """As Kubernetes' disruption controller: pods that are being deleted are not healthy, and the
    number of pods is that of their controllers."""
    namespace = budget["metadata"]["namespace"]
    matching = [
        pod
        for key, pod in store.objects.items()
        if key[:3] == (*PODS, namespace) and _matches(budget, pod)
    ]
    healthy = sum(is_ready(pod) and not is_ending(pod) for pod in matching)
    spec = budget["spec"]
    if "minAvailable" in spec:
        needed = int(spec["minAvailable"])
    else:
        controllers = {c["metadata"]["uid"]: c for p in matching for c in [_controller(store, p)]}
        expected = sum(c.get("spec", {}).get("replicas", 1) for c in controllers.values())
        needed = max(0, expected - int(spec["maxUnavailable"]))
    if healthy - 1 < needed:
        name = budget["metadata"]["name"]
        counts = f"needs {needed} healthy pods and has {healthy} currently"
        message = f"The disruption budget {name} {counts}"
        causes = [{"reason": "DisruptionBudget", "message": message}]
        text = "Cannot evict pod as it would violate the pod's disruption budget."
        raise ApiError(429, "TooManyRequests", text, {"causes": causes})


def _controller(store: Store, manifest: Object) -> Object:
    """The outermost owner with a number of replicas, such as a Deployment; itself without one."""
    uids = {owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or ()}
    for owner in store.objects.values():
        if owner["metadata"]["uid"] in uids and "replicas" in (owner.get("spec") or {}):
            return _controller(store, owner)
    return {"metadata": manifest["metadata"]} if manifest["kind"] == "Pod" else manifest


@dataclass
class Containers:
    """Restarts of containers after `kill 1`, as the kubelet reports them, and slow starts.

    An admission of the store, so that it works with every controller that writes pods.
    """

    store: Store
    restart_s: float = 0.3
    start_s: float = 0.0  # of pods that are created from now on
    # The exit code and the output of a command in a container.
    execute: Callable[[list[str]], tuple[int, str]] = lambda command: (0, "")
    _restarts: dict[str, int] = field(default_factory=dict)  # by pod
    _ready_at: dict[str, float] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def run(self, key: Key, command: list[str]) -> tuple[int, str]:
        """Execute a command in a pod; `kill 1` restarts its container."""
        code, output = self.execute(command)
        with self.store.lock:
            pod = self.store.objects[key]
            if code == 0 and command[-1] == "kill 1":
                self._restarts[key[3]] = self._restarts.get(key[3], 0) + 1
                self._ready_at[key[3]] = time.monotonic() + self.restart_s
                self.store.write(key, pod)
        return code, output

    def admit(self, new: Object, old: Object | None) -> None:
        if old is None or new.get("kind") != "Pod":
            return
        name = old["metadata"]["name"]
        if name not in self._seen:
            self._seen.add(name)
            self._ready_at[name] = time.monotonic() + self.start_s
        statuses = (new.get("status") or {}).get("containerStatuses")
        if not statuses:
            return
        is_ready = time.monotonic() >= self._ready_at[name]
        statuses[0]["restartCount"] = self._restarts.get(name, statuses[0]["restartCount"])
        statuses[0]["ready"] = is_ready and statuses[0]["ready"]
        for condition in new["status"].get("conditions") or ():
            if condition["type"] == "Ready" and not is_ready:
                condition["status"] = "False"


@dataclass
class Nodes:
    """Nodes in the store; new pods are put on them in turn, except on cordoned ones."""

    store: Store
    names: tuple[str, ...]
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for name in self.names:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {}, "spec": {}}
            self.store.write(("v1", "nodes", "", name), node)
        self.store.admission.append(self.admit)

    def admit(self, new: Object, old: Object | None) -> None:
        if new.get("kind") != "Pod" or new["spec"].get("nodeName"):
            return
        if old is not None and old["spec"].get("nodeName"):
            new["spec"] = {**new["spec"], "nodeName": old["spec"]["nodeName"]}
            return
        free = [name for name in self.names if not self.is_cordoned(name)]
        if free:
            new["spec"] = {**new["spec"], "nodeName": free[next(self._numbers) % len(free)]}
        else:  # unschedulable
            new["status"] = {"phase": "Pending"}

    def is_cordoned(self, name: str) -> bool:
        spec = self.store.objects["v1", "nodes", "", name].get("spec") or {}
        return bool(spec.get("unschedulable"))

    def cordons(self) -> list[tuple[str, bool]]:
        """Every change of a node, oldest first."""
        changes = []
        for _, _, key, manifest in self.store.log:
            if key[1] == "nodes":
                changes.append((key[3], bool((manifest.get("spec") or {}).get("unschedulable"))))
        return changes[len(self.names) :]
