"""The ready frontends of a release, asked through the API server: to which workers they route.

A pod is ready when its own process is; each frontend discovers it some seconds later (dynamo#13622,
#13769). Reads the responses as the readiness of `platform: plain` does (helm/penstock/files/
ready.py), and also the number of workers.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.diagnose import is_ready
from penstock.cluster.release import Release
from penstock.cluster.workloads import (
    FRONTEND,
    Object,
    Workload,
    component_of,
    namespace_of,
    workloads,
)
from penstock.errors import ClusterError

HTTP_PORT = 8000
TIMEOUT_S = 5.0  # of one request to a frontend
MODELS = "v1/models"
UNKNOWN = 404  # of a model's readiness, before Dynamo 1.3
# What frontends call the workers of a pool of this type.
WORKER_TYPES = {"worker": "aggregated"}


@dataclass(frozen=True, kw_only=True)
class Admission:
    """To which workers the ready frontends route."""

    # The fewest workers of each pool to which a ready frontend routes; empty if not known.
    workers: Mapping[str, int] = field(default_factory=dict)
    # What a frontend does not route to yet, as clauses.
    missing: tuple[str, ...] = ()
    # Why it is not known; "" if it is.
    unchecked: str = ""
    # Whether it is not known because a frontend does not respond, which may pass.
    is_unreached: bool = False

    @classmethod
    def not_checked(cls, reason: str, **more: Any) -> Admission:
        text = f"whether the frontends route to the workers was not checked: {reason}"
        return cls(unchecked=text, **more)


def frontend_port(release: Release) -> int:
    """The port on which the release's frontends serve."""
    args = workloads(release.objects)[FRONTEND].spec.get("args", {})
    return int(args.get("--http-port", HTTP_PORT))


def ready_frontends(pods: Iterable[Object]) -> list[str]:
    """The names of the frontends that are ready and not being deleted."""
    serving = (p for p in _kept(pods) if component_of(p) == FRONTEND and is_ready(p))
    return sorted(str(pod["metadata"]["name"]) for pod in serving)


def read_admission(
    api: Api, release: Release, live: Iterable[Object], pods: Iterable[Object]
) -> Admission:
    """Ask every ready frontend. ``live``: the release's objects; ``pods``: its pods.

    Without a replica of the frontend or of a pool, no request can be routed, and nothing is asked.
    """
    listed = list(_kept(pods))
    components = workloads(live)
    pools = {name: pool for name, pool in components.items() if pool.is_worker}
    if FRONTEND not in components or not all(c.replicas for c in components.values()):
        return Admission()
    quick = copy.copy(api)
    quick.timeout_s = TIMEOUT_S
    port = frontend_port(release)
    ready = {name: [p for p in listed if component_of(p) == name and is_ready(p)] for name in pools}
    expected = {name: _generations(ready[name], pool.nodes) for name, pool in pools.items()}
    workers: dict[str, int] = {}
    # The pods may have been listed before those with which the pool is complete were ready.
    missing = [
        f"only {len(ready[name])} of {pool.replicas} workers of {name} are ready"
        for name, pool in pools.items()
        if len(ready[name]) < pool.replicas
    ]
    unreached: list[str] = []
    for frontend in ready_frontends(listed):
        try:
            states = _states(quick, frontend, port)
            routed = {name: _routed(pool, expected[name], states) for name, pool in pools.items()}
        except ForbiddenError as error:
            return Admission.not_checked(str(error))
        except (ClusterError, LookupError, TypeError, ValueError, AttributeError) as error:
            unreached.append(f"frontend {frontend} does not respond: {error}")
            continue
        for name, counts in routed.items():
            workers[name] = min(workers.get(name, counts.total()), counts.total())
            missing += _missing(frontend, name, expected[name], counts)
    if not workers and not unreached:
        return Admission(missing=("no frontend is ready",))
    if unreached:
        reason = "; ".join(unreached)
        return Admission.not_checked(reason, missing=tuple(missing), is_unreached=True)
    return Admission(workers=workers, missing=tuple(missing))


def _kept(pods: Iterable[Object]) -> Iterator[Object]:
    return (pod for pod in pods if not pod["metadata"].get("deletionTimestamp"))


def _generations(workers: Iterable[Object], nodes: int) -> Counter[str]:
    """The replicas by the Dynamo namespace of their generation. Only one pod of a replica on
    several nodes registers itself."""
    counts = Counter(map(namespace_of, workers))
    return Counter({namespace: max(1, count // nodes) for namespace, count in counts.items()})


def _states(api: Api, frontend: str, port: int) -> Mapping[str, Any] | None:
    """What the frontend reports of each Dynamo namespace; None if it reports no namespaces, but
    lists a model. Raises ClusterError, and others if the response is not as expected."""
    states: dict[str, Any] = {}
    for model in json.loads(api.get_from_pod(frontend, port, MODELS))["data"]:
        # The API server decodes the path, so that a slash reaches the frontend either way.
        path = f"{MODELS}/{quote(model['id'])}/ready"
        status, text = api.response_of_pod(frontend, port, path)
        if status == UNKNOWN:
            return None
        namespaces = json.loads(text).get("namespaces") or {}
        states |= {name: state for name, state in namespaces.items() if state["ready"]}
    return states


def _routed(
    pool: Workload, expected: Counter[str], states: Mapping[str, Any] | None
) -> Counter[str]:
    """To how many workers of each generation a frontend routes."""
    if states is None:
        return expected
    counts: Counter[str] = Counter()
    kind = WORKER_TYPES.get(pool.type, pool.type)
    for namespace, count in expected.items():
        if namespace in states:
            types = states[namespace].get("worker_types") or {}
            counts[namespace] = min(count, int(types.get(kind, {}).get("workers", count)))
        elif not namespace and states:
            counts[namespace] = count
    return counts


def _missing(
    frontend: str, pool: str, expected: Counter[str], counts: Counter[str]
) -> Iterator[str]:
    for namespace, count in expected.items():
        suffix = namespace.rpartition("-")[2]
        generation = f"generation {suffix} of {pool}" if suffix else pool
        if not counts[namespace]:
            yield f"frontend {frontend} does not route to {generation} yet"
        elif counts[namespace] < count:
            routed = f"{counts[namespace]} of {count} workers"
            yield f"frontend {frontend} routes to only {routed} of {generation} yet"
