"""The controllers of the emulated cluster: Dynamo's operator, Deployments, a scheduler.

A state machine stepped by a thread or a test. As documented for operator 1.6, a change of any
worker's template starts a new generation of all workers; a new pod starts before an old one stops;
the status has `observedGeneration`, the Ready condition and counts by component. The spec of a pod
determines its behavior: missing image, missing GPUs, crash, failing probe, steps to load the model.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.emulated_cluster import adapters, fields
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.store import Key, Object, Store

WORKERS = ("prefill", "decode", "worker")
COMPONENT = "penstock/component"


@dataclass
class Machine:
    """The cluster's GPUs and the behavior of its pods; both can change while it runs."""

    gpus: int = 64
    # From a pod's flags: the number of steps until it is ready.
    steps_to_ready: Callable[[list[str]], int] = lambda args: 10**6 if "--slow" in args else 2
    is_there: Callable[[str], bool] = lambda image: "missing" not in image
    # The end of its log if it crashes, "" if it runs.
    crash_log: Callable[[list[str]], str] = lambda args: (
        "ValueError: no such parser" if "--crash" in args else ""
    )
    is_probed_well: Callable[[list[str]], bool] = lambda args: "--deaf" not in args


@dataclass
class Operator:
    """`with Operator(api):` steps in the background; ``serving``: ready pods of each step."""

    api: ApiServer
    machine: Machine = field(default_factory=Machine)
    serving: list[dict[str, int]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _steps: dict[str, int] = field(default_factory=dict)  # by pod uid
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Operator:
        self.store.admission.append(adapters.admit)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the operator and the other controllers."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.03):
            self.step()

    @property
    def store(self) -> Store:
        return self.api.store

    def step(self) -> None:
        """Run every controller once."""
        with self.store.lock:
            for graph in self.store.of_kind("DynamoGraphDeployment"):
                self._finalize(graph)
            for graph in self.store.of_kind("DynamoGraphDeployment"):
                adapters.reconcile(self.store, graph)
            owners = [*self.store.of_kind("DynamoGraphDeployment")]
            for kind in ("Deployment", "StatefulSet", "LeaderWorkerSet"):
                owners += self.store.of_kind(kind)
            self._collect({o["metadata"]["uid"] for o in owners})
            for pod in self.store.of_kind("Pod"):
                self._kubelet(pod)
            for owner in owners:
                self._reconcile(owner)
            ready: dict[str, int] = {}
            for pod in self.store.of_kind("Pod"):
                name = pod["metadata"]["labels"].get(COMPONENT, "")
                ready[name] = ready.get(name, 0) + _is_ready(pod)
            self.serving.append(ready)

    def _finalize(self, graph: Object) -> None:
        """Set the finalizer on a new graph; remove a deleted graph."""
        meta = graph["metadata"]
        if "deletionTimestamp" in meta:
            self.store.remove(_key(graph))
        elif "finalizers" not in meta:
            made = {**graph, "metadata": {**meta, "finalizers": ["nvidia.com/finalizer"]}}
            made = fields.update(graph, made, adapters.OPERATOR)
            self.store.write(_key(graph), made, trusted=True)

    def lowest(self, component: str, since: int = 0) -> int:
        """The fewest ready pods that the component had in any step."""
        return min(ready.get(component, 0) for ready in self.serving[since:])

    def _collect(self, owners: set[str]) -> None:
        """Delete pods whose owner was deleted."""
        for pod in self.store.of_kind("Pod"):
            if pod["metadata"]["ownerReferences"][0]["uid"] not in owners:
                self.store.remove(_key(pod))

    def _reconcile(self, owner: Object) -> None:
        components = _components(owner)
        generation = _digest([c["podTemplate"] for c in components if c["type"] in WORKERS])
        states = {}
        for component in components:
            of_worker = component["type"] in WORKERS
            target = generation if of_worker else _digest(component["podTemplate"])
            states[component["name"]] = self._update(owner, component, target)
        self._write_status(owner, states)

    def _update(self, owner: Object, component: Object, generation: str) -> dict[str, int]:
        """One step of a component towards its replicas in its generation; returns its counts."""
        desired = component.get("replicas", 1)
        pods = self._pods(owner, component["name"])
        new = [p for p in pods if p["metadata"]["labels"]["generation"] == generation]
        old = [p for p in pods if p not in new]
        surge = 1 if old else 0
        if len(new) < desired and len(pods) < desired + surge:
            new.append(self._make(owner, component, generation))
        ready = [p for p in new if _is_ready(p)]
        for pod in sorted(new, key=_is_ready)[: max(0, len(new) - desired)]:
            self.store.remove(_key(pod))
            new.remove(pod)
        # Pods that never served are deleted first, then surplus serving pods.
        for pod in sorted(old, key=_is_ready):
            serving = len(ready) + sum(map(_is_ready, old))
            if not _is_ready(pod) or serving > desired or desired == 0:
                self.store.remove(_key(pod))
                old.remove(pod)
                break
        return {
            "replicas": len(new) + len(old),
            "updatedReplicas": len(new),
            "readyReplicas": sum(map(_is_ready, new + old)),
            "desired": desired,
        }

    def _pods(self, owner: Object, component: str) -> list[Object]:
        return [
            pod
            for pod in self.store.of_kind("Pod")
            if pod["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
            and pod["metadata"]["labels"].get("component") == component
        ]

    def _make(self, owner: Object, component: Object, generation: str) -> Object:
        meta = owner["metadata"]
        name = f"{meta['name']}-{component['name']}-{generation[:5]}-{next(self._numbers)}"
        labels = component["podTemplate"].get("metadata", {}).get("labels", {})
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "labels": {**labels, "component": component["name"], "generation": generation},
                "ownerReferences": [
                    {
                        "apiVersion": owner["apiVersion"],
                        "kind": owner["kind"],
                        "name": meta["name"],
                        "uid": meta["uid"],
                    }
                ],
            },
            "spec": component["podTemplate"]["spec"],
            "status": {"phase": "Pending"},
        }
        return self.store.write(("v1", "pods", meta["namespace"], name), pod)

    def _kubelet(self, pod: Object) -> None:
        """One step of one pod: scheduled, pulled, started, ready, or the reason why not."""
        uid = pod["metadata"]["uid"]
        steps = self._steps[uid] = self._steps.get(uid, 0) + 1
        status = dict(pod["status"])
        args = _args(pod)
        image = _main(pod)["image"]
        name = pod["metadata"]["name"]
        if _gpus(pod) and not status.get("scheduled") and _gpus(pod) > self._free_gpus():
            words = f"0/4 nodes are available: 4 Insufficient nvidia.com/gpu ({self._free_gpus()})."
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": words,
                }
            ]
        elif not self.machine.is_there(image):
            status |= {"scheduled": True, "conditions": []}
            _waits(status, "ImagePullBackOff", f'Back-off pulling image "{image}": not found')
        elif words := self.machine.crash_log(args):
            self.api.logs[name] = f"loading\n{words}\n"
            restarts = steps // 3
            ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
            status |= {"scheduled": True, "conditions": []}
            _waits(status, "CrashLoopBackOff", "back-off 10s restarting failed container")
            status["containerStatuses"][0] |= {"restartCount": restarts, "lastState": ended}
        else:
            good = self.machine.is_probed_well(args)
            ready = good and steps >= self.machine.steps_to_ready(args)
            if not good and steps == 3:
                self._event(pod, "Unhealthy", "Startup probe failed: HTTP 503")
            status |= {"scheduled": True, "phase": "Running"}
            status["conditions"] = [{"type": "Ready", "status": str(ready)}]
            status["containerStatuses"] = [_container(ready=ready, state={"running": {}})]
        if status != pod["status"]:
            self.store.write(_key(pod), {**pod, "status": status})

    def _free_gpus(self) -> int:
        pods = self.store.of_kind("Pod")
        return self.machine.gpus - sum(_gpus(p) for p in pods if p["status"].get("scheduled"))

    def _event(self, pod: Object, reason: str, message: str) -> None:
        meta = pod["metadata"]
        about = {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"]}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "involvedObject": about,
        }
        name = f"{meta['name']}.{next(self._numbers)}"
        self.store.write(("v1", "events", meta["namespace"], name), event)

    def _write_status(self, owner: Object, states: dict[str, dict[str, int]]) -> None:
        done = all(
            s["replicas"] == s["updatedReplicas"] == s["readyReplicas"] == s["desired"]
            for s in states.values()
        )
        generation = owner["metadata"]["generation"]
        counts = {
            name: {k: v for k, v in state.items() if k != "desired"}
            for name, state in states.items()
        }
        if owner["kind"] == "DynamoGraphDeployment":
            reason = "all_resources_are_ready" if done else "some_resources_are_not_ready"
            ready = {
                "type": "Ready",
                "status": str(done),
                "reason": reason,
                "observedGeneration": generation,
            }
            kinds = {n: {"componentKind": "Deployment", **c} for n, c in counts.items()}
            status: Object = {
                "observedGeneration": generation,
                "state": "successful" if done else "pending",
                "conditions": [ready],
                "components": kinds,
            }
        elif owner["kind"] == "LeaderWorkerSet":  # has no observedGeneration
            (counted,) = counts.values()
            available = {"type": "Available", "status": str(done), "message": "not all ready"}
            status = {**counted, "conditions": [available]}
        else:
            (counted,) = counts.values()
            status = {
                "observedGeneration": generation,
                "availableReplicas": counted["readyReplicas"],
                **counted,
            }
        if owner.get("status") != status:
            self.store.write(_key(owner), {**owner, "status": status})


def _components(owner: Object) -> list[Object]:
    spec = owner["spec"]
    if owner["kind"] == "DynamoGraphDeployment":
        return list(spec["components"])
    name = owner["metadata"]["labels"].get("app.kubernetes.io/component", "")
    replicas = spec.get("replicas", 1)
    # Only the leader of a group: it is ready when the whole group is.
    template = spec.get("template") or spec["leaderWorkerTemplate"]["leaderTemplate"]
    return [{"name": name, "type": "own", "replicas": replicas, "podTemplate": template}]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def _key(manifest: Object) -> Key:
    plurals = {
        "Pod": "pods",
        "DynamoGraphDeployment": "dynamographdeployments",
        "Deployment": "deployments",
        "StatefulSet": "statefulsets",
        "LeaderWorkerSet": "leaderworkersets",
    }
    meta = manifest["metadata"]
    return manifest["apiVersion"], plurals[manifest["kind"]], meta["namespace"], meta["name"]


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


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
