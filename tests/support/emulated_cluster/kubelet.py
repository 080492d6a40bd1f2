"""The scheduler and the kubelets of the emulated cluster: what becomes of each pod.

The spec of a pod determines its behavior: missing image, missing GPUs, crash, failing probe, steps
to load the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.support.emulated_cluster import policies
from tests.support.emulated_cluster.routing import Routing
from tests.support.emulated_cluster.store import ApiError, Object, Store, key_of


@dataclass
class Machine:
    """The cluster's GPUs and the behavior of its pods; both can change while it runs."""

    gpus: int = 64
    # From a pod's flags: the number of steps until it is ready.
    steps_to_ready: Callable[[list[str]], int] = lambda args: 10**6 if "--slow" in args else 2
    # How many steps a deleted pod needs to end.
    steps_to_end: int = 0
    is_there: Callable[[str], bool] = lambda image: "missing" not in image
    # The end of its log if it crashes, "" if it runs.
    crash_log: Callable[[list[str]], str] = lambda args: (
        "ValueError: no such parser" if "--crash" in args else ""
    )
    is_probed_well: Callable[[list[str]], bool] = lambda args: "--deaf" not in args
    # Whether a readiness probe that is a command is executed: that of `platform: plain`.
    executes_probes: bool = True
    # Steps before the first of the operator's readiness probes of a frontend.
    first_probe: int = 0


@dataclass
class Kubelet:
    """Steps every pod; ``logs`` by pod, which the API serves."""

    store: Store
    logs: dict[str, str]
    machine: Machine
    steps: dict[str, int] = field(default_factory=dict)  # by pod uid
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.routing = Routing(self.store)

    def make(self, owner: Object, name: str, template: Object, labels: Mapping[str, str]) -> None:
        """Create a pod of an owner from its template, unless the namespace's policies refuse it."""
        meta = owner["metadata"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "labels": {**template.get("metadata", {}).get("labels", {}), **labels},
                "ownerReferences": [reference_to(owner)],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        key = ("v1", "pods", meta["namespace"], f"{name}-{next(self.numbers)}")
        try:
            policies.admit(self.store, key, pod)
        except ApiError as refusal:
            self._report(owner, f"Error creating: {refusal}")
            return
        self.store.write(key, pod)

    def _report(self, owner: Object, message: str) -> None:
        """The event of a pod that could not be created; the first one stands for all."""
        key = ("v1", "events", owner["metadata"]["namespace"], f"{owner['metadata']['name']}.1")
        if key in self.store.objects:
            return
        self.store.write(key, warning(owner, "FailedCreate", message), trusted=True)

    def delete(self, pod: Object) -> None:
        """Begin to end a pod: it no longer counts, and goes after ``steps_to_end``."""
        uid = pod["metadata"]["uid"]
        self.steps[uid] = 0
        if not self.machine.steps_to_end:
            self.store.remove(key_of(pod))
            return
        pod["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
        self.store.write(key_of(pod), pod)

    def step(self, pod: Object) -> None:
        """One step of one pod: scheduled, pulled, started, ready, or the reason why not."""
        uid = pod["metadata"]["uid"]
        steps = self.steps[uid] = self.steps.get(uid, 0) + 1
        if is_ending(pod):
            if steps >= self.machine.steps_to_end:
                self.store.remove(key_of(pod))
            return
        status = dict(pod["status"])
        args = _args(pod)
        image = _main(pod)["image"]
        name = pod["metadata"]["name"]
        serves = False
        if _gpus(pod) and not is_scheduled(pod) and _gpus(pod) > self._free_gpus():
            self.steps[uid] = 0
            words = f"0/4 nodes are available: 4 Insufficient nvidia.com/gpu ({self._free_gpus()})."
            status["conditions"] = [_scheduled("False", reason="Unschedulable", message=words)]
        elif not self.machine.is_there(image):
            status["conditions"] = [_scheduled("True")]
            _waits(status, "ImagePullBackOff", f'Back-off pulling image "{image}": not found')
        elif words := self.machine.crash_log(args):
            self.logs[name] = f"loading\n{words}\n"
            ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
            status["conditions"] = [_scheduled("True")]
            _waits(status, "CrashLoopBackOff", "back-off 10s restarting failed container")
            status["containerStatuses"][0] |= {"restartCount": steps // 3, "lastState": ended}
        else:
            good = self.machine.is_probed_well(args)
            serves = good and (is_ready(pod) or steps >= self.machine.steps_to_ready(args))
            self.routing.set_serving(pod, serves=serves)
            ready = serves and (is_ready(pod) or self._is_probed_ready(pod))
            if not good and steps == 3:
                self.warn(pod, "Unhealthy", "Startup probe failed: HTTP 503")
            status |= {"phase": "Running"}
            status["conditions"] = [_scheduled("True"), {"type": "Ready", "status": str(ready)}]
            status["containerStatuses"] = [_container(ready=ready, state={"running": {}})]
        self.routing.set_serving(pod, serves=serves)
        if status != pod["status"]:
            self.store.write(key_of(pod), {**pod, "status": status})

    def _is_probed_ready(self, pod: Object) -> bool:
        probe = _main(pod).get("readinessProbe") or {}
        if self.machine.executes_probes and "exec" in probe:
            return self.routing.is_ready(pod, is_ready)
        is_frontend = pod["metadata"]["labels"].get("penstock/component") == "frontend"
        return not is_frontend or self.steps[pod["metadata"]["uid"]] >= self.machine.first_probe

    def warn(self, about: Object, reason: str, message: str) -> None:
        """A warning event about an object."""
        meta = about["metadata"]
        name = f"{meta['name']}.{next(self.numbers)}"
        key = ("v1", "events", meta["namespace"], name)
        self.store.write(key, warning(about, reason, message))

    def _free_gpus(self) -> int:
        pods = self.store.of_kind("Pod")
        return self.machine.gpus - sum(_gpus(p) for p in pods if is_scheduled(p))


def warning(about: Object, reason: str, message: str) -> Object:
    meta = about["metadata"]
    involved = {name: meta[name] for name in ("namespace", "name", "uid", "resourceVersion")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {k: about[k] for k in ("apiVersion", "kind")} | involved,
    }


def reference_to(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_ending(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_scheduled(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "PodScheduled" and c["status"] == "True" for c in conditions)


def _scheduled(status: str, **why: str) -> Object:
    return {"type": "PodScheduled", "status": status, **why}


def _main(pod: Object) -> Object:
    return dict(next(c for c in pod["spec"]["containers"]))


def _args(pod: Object) -> list[str]:
    return [*_main(pod).get("args", ()), *_main(pod).get("command", ())]


def _gpus(pod: Object) -> int:
    limits = _main(pod).get("resources", {}).get("limits", {})
    return int(limits.get("nvidia.com/gpu", 0))


def _waits(status: Object, reason: str, message: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": message}}
    status["containerStatuses"] = [_container(ready=False, state=waiting)]


def _container(*, ready: bool, state: Object) -> Object:
    image = {"image": "", "imageID": ""}
    return {"name": "main", "restartCount": 0, "ready": ready, "state": state, **image}
