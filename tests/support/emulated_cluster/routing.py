"""What the frontends of the emulated cluster know of its workers, and what they answer.

A worker registers itself when its process serves, and each frontend discovers it later, as in
dynamo#13622 and #13769. The answers are those of Dynamo 1.6.1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.support.emulated_cluster.store import Object, Store

MODEL = "openai/gpt-oss-20b"
ROLES = {"prefill": "prefill", "decode": "decode", "worker": "aggregated"}
NEEDS = {"prefill": "decode", "decode": "prefill"}
NAMESPACE, SUFFIX = "DYN_NAMESPACE", "DYN_NAMESPACE_WORKER_SUFFIX"


@dataclass
class Routing:
    """``served_since``: the step in which the process of each pod began to serve, by uid."""

    store: Store
    # How many steps the frontend needs to discover the worker; both by the pod's name.
    delay: Callable[[str, str], int] = lambda frontend, worker: 0
    served_since: dict[str, int] = field(default_factory=dict)
    now: int = 0

    def set_serving(self, pod: Object, *, serves: bool) -> None:
        uid = pod["metadata"]["uid"]
        if serves:
            self.served_since.setdefault(uid, self.now)
        else:
            self.served_since.pop(uid, None)

    def known_to(self, frontend: Object) -> list[Object]:
        """The workers that the frontend lists."""
        since = self.served_since.get(frontend["metadata"]["uid"])
        if since is None:
            return []
        name = frontend["metadata"]["name"]
        return [
            pod
            for pod in self.of("worker", frontend)
            if (began := self.served_since.get(pod["metadata"]["uid"])) is not None
            and self.now - max(began, since) >= self.delay(name, pod["metadata"]["name"])
        ]

    def of(self, kind: str, like: Object) -> list[Object]:
        """The frontends, or the workers, of the release of a pod that are not being deleted."""
        graph = _labels(like).get("penstock/graph")
        kinds = ("frontend",) if kind == "frontend" else tuple(ROLES)
        return [
            pod
            for pod in self._pods()
            if _labels(pod).get("penstock/graph") == graph and _component(pod) in kinds
        ]

    def _pods(self) -> Iterator[Object]:
        """Those that are not being deleted."""
        for key, pod in self.store.objects.items():
            if key[1] == "pods" and "deletionTimestamp" not in pod["metadata"]:
                yield pod

    def namespaces(self, frontend: Object) -> dict[str, Object]:
        """The frontend's state of each Dynamo namespace."""
        counts: dict[str, dict[str, int]] = {}
        for pod in self.known_to(frontend):
            role = ROLES[_component(pod)]
            types = counts.setdefault(namespace_of(pod), {})
            types[role] = types.get(role, 0) + 1
        return {name: _state(types) for name, types in counts.items()}

    def is_ready(self, pod: Object, ready: Callable[[Object], bool]) -> bool:
        """What the chart's probe finds on `platform: plain` (files/ready.py)."""
        if _component(pod) == "frontend":
            return any(state["ready"] for state in self.namespaces(pod).values())
        serving = [f for f in self.of("frontend", pod) if ready(f)]
        own = namespace_of(pod)
        routes = (self.namespaces(f).get(own, {}).get("ready", False) for f in serving)
        return bool(serving) and all(routes)

    def admitted(self, ready: Callable[[Object], bool]) -> dict[str, int]:
        """The fewest ready workers of each pool to which a ready frontend routes."""
        frontends = [p for p in self._pods() if _component(p) == "frontend" and ready(p)]
        fewest: dict[str, int] = {}
        for frontend in frontends:
            states = self.namespaces(frontend)
            known = [p for p in self.known_to(frontend) if states[namespace_of(p)]["ready"]]
            counts = Counter(_component(pod) for pod in known if ready(pod))
            for pool in ROLES:
                fewest[pool] = min(fewest.get(pool, counts[pool]), counts[pool])
        return fewest

    def answer(self, pod: Object, path: str) -> tuple[int, str] | None:
        """The status and the body of a GET to a frontend about models; None for other requests."""
        if _component(pod) != "frontend" or pod["metadata"]["uid"] not in self.served_since:
            return None
        states = self.namespaces(pod)
        is_ready = any(state["ready"] for state in states.values())
        if path == "v1/models":
            models = [{"id": MODEL, "object": "model"}] if is_ready else []
            return 200, json.dumps({"object": "list", "data": models})
        if not path.startswith("v1/models/"):
            return None
        if unquote(path) == f"v1/models/{MODEL}/ready" and states:
            body = {"model": MODEL, "ready": is_ready, "namespaces": states}
            return 200 if is_ready else 503, json.dumps(body)
        return 404, json.dumps({"error": {"message": "Model not found", "code": "model_not_found"}})


def _state(types: Mapping[str, int]) -> Object:
    missing = sorted({NEEDS[role] for role in types if role in NEEDS} - types.keys())
    return {
        "ready": not missing,
        "worker_types": {
            role: {"workers": count, "needs": [[NEEDS[role]]] if role in NEEDS else []}
            for role, count in sorted(types.items())
        },
        "present": sorted(types),
        "missing_worker_types": missing,
    }


def namespace_of(pod: Object) -> str:
    """The Dynamo namespace of a worker."""
    (main, *_) = pod["spec"]["containers"]
    variables = {entry["name"]: entry.get("value", "") for entry in main.get("env") or ()}
    return f"{variables.get(NAMESPACE, '')}-{variables.get(SUFFIX, '')}"


def with_variables(template: Object, namespace: str, generation: str) -> Object:
    """The template with the Dynamo namespace in which its pods register themselves."""
    added = {NAMESPACE: namespace, SUFFIX: generation}
    variables = [{"name": name, "value": value} for name, value in added.items() if value]
    (main, *others) = template["spec"]["containers"]
    kept = [entry for entry in main.get("env") or () if entry["name"] not in added]
    containers = [{**main, "env": [*kept, *variables]}, *others]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _labels(pod: Object) -> Object:
    return dict(pod["metadata"].get("labels") or {})


def _component(pod: Object) -> str:
    return str(_labels(pod).get("penstock/component", ""))
