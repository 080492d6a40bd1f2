"""Random changes of a release on the emulated cluster, and what they left to serve at each moment.

Every change is a command of penstock, or what happens to a cluster meanwhile: an operator that
restarts, a node that is drained.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

import yaml

from tests.support.emulated_cluster import pods
from tests.support.emulated_cluster.kubelet import is_ending, key_of
from tests.support.emulated_cluster.released import Cluster
from tests.support.emulated_cluster.routing import namespace_of
from tests.support.emulated_cluster.store import ApiError, Object

NODES = ("node-a", "node-b", "node-c")
REPLICAS = {"frontend": 2, "prefill": 3, "decode": 3}
POOLS = ("prefill", "decode")
DISCOVERY_S = 4  # most seconds until a frontend lists a worker
LOAD_S = (5, 25)  # until a worker serves; another time for each pool and change
FIRST_PROBE_S = 10  # `initialDelaySeconds` of the operator's probe of a frontend, as recorded
EVICTION_S = 5  # `kubectl drain` tries again after it
# How many changes one of a kind makes, if not one.
CHANGES = {"scale": 2, "revert": 2, "two_edits": 2, "operator_restart": 2, "drain_in_an_update": 2}


@dataclass(kw_only=True)
class Figures:
    """What one kind of change left to serve."""

    changes: int = 0
    # Most replicas of a component that were not ready, of those before and after the change.
    missing_replicas: int = 0
    # Fewest ready workers of a pool to which every ready frontend routed, and how long none.
    fewest_admitted: int = 10**6
    seconds_without_route: int = 0


@dataclass
class History:
    """Changes a release that is installed with REPLICAS. ``random`` decides all that is random."""

    cluster: Cluster
    random: Random
    figures: dict[str, Figures] = field(default_factory=dict)
    # For each time when penstock reported readiness: workers that a ready frontend did not list.
    unlisted: list[int] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        operator = self.cluster.operator
        self._nodes = pods.Nodes(self.cluster.api.store, NODES)
        seed = self.random.random()
        operator.kubelet.routing.delay = lambda frontend, worker: (
            zlib.crc32(f"{seed} {frontend} {worker}".encode()) % (DISCOVERY_S + 1)
        )
        operator.machine.steps_to_end = 3
        operator.machine.first_probe = FIRST_PROBE_S
        self.kinds: tuple[Callable[[], None], ...] = (
            self.worker_edit,
            self.frontend_edit,
            self.scale,
            self.revert,
            self.two_edits,
            self.operator_restart,
            self.drain,
            self.drain_in_an_update,
        )

    def run(self, changes: int) -> None:
        """Each kind of change in turn, in a random order, until there were at least ``changes``."""
        operator = self.cluster.operator
        while self.changes < changes:
            for change in self.random.sample(self.kinds, len(self.kinds)):
                if self.changes >= changes:
                    return
                seconds = {pool: self.random.randint(*LOAD_S) for pool in POOLS}
                operator.machine.steps_to_ready = partial(_load_s, seconds)
                figures = self.figures.setdefault(change.__name__, Figures())
                figures.changes += CHANGES.get(change.__name__, 1)
                first = len(operator.serving)
                change()
                self._measure(figures, first)

    @property
    def changes(self) -> int:
        return sum(figures.changes for figures in self.figures.values())

    def _measure(self, figures: Figures, first: int) -> None:
        serving = self.cluster.operator.serving[first:]
        for ready in serving:
            missing = max(count - ready.get(name, 0) for name, count in REPLICAS.items())
            figures.missing_replicas = max(figures.missing_replicas, missing)
        for admitted in self.cluster.operator.admitted[first:]:
            fewest = min(admitted.get(pool, 0) for pool in POOLS)
            figures.fewest_admitted = min(figures.fewest_admitted, fewest)
            figures.seconds_without_route += fewest == 0

    def worker_edit(self) -> None:
        self._edit_worker()
        self._apply()

    def frontend_edit(self) -> None:
        self._number += 1
        self.cluster.edit(frontend={"env": {"CHANGE": str(self._number)}})
        self._apply()

    def scale(self) -> None:
        pool = self.random.choice(POOLS)
        self.cluster.edit(**{pool: {"replicas": REPLICAS[pool] + 1}})
        self._apply()
        self.cluster.edit(**{pool: {"replicas": REPLICAS[pool]}})
        self._apply()

    def revert(self) -> None:
        text = self.cluster.graph.read_text()
        self._edit_worker()
        self._apply("--no-wait")
        self._wait(self.random.randint(1, 40))
        self.cluster.graph.write_text(text)
        self._apply()

    def two_edits(self) -> None:
        self._edit_worker()
        self._apply("--no-wait")
        self._wait(3)
        self._edit_worker()
        self._apply()

    def operator_restart(self) -> None:
        self._edit_worker()
        self._apply("--no-wait")
        self._wait(self.random.randint(1, 20))
        self.cluster.operator.is_away = True
        self._wait(self.random.randint(1, 20))
        self.cluster.operator.is_away = False
        self._resume()

    def drain(self) -> None:
        self._drain(self.random.choice(NODES))
        self._resume()

    def drain_in_an_update(self) -> None:
        self._edit_worker()
        self._apply("--no-wait")
        self._wait(self.random.randint(1, 20))
        self._drain(self.random.choice(NODES))
        self._resume()

    def _edit_worker(self) -> None:
        self._number += 1
        pool = self.random.choice(POOLS)
        self.cluster.edit(**{pool: {"env": {"CHANGE": str(self._number)}}})

    def _apply(self, *arguments: str) -> None:
        output = self.cluster.expect(0, "apply", "--yes", "--skip-check", *arguments)
        if not arguments:
            self._expect_admitted(output)

    def _resume(self) -> None:
        """Wait for the rollout, or for pods that a drained node has lost."""
        self._expect_admitted(self.cluster.expect(0, "apply", "--yes", "--skip-check"))

    def _expect_admitted(self, output: str) -> None:
        assert " is ready\n" in output, output
        store, routing = self.cluster.api.store, self.cluster.operator.kubelet.routing
        with store.lock:
            listed = [pod for pod in store.of_kind("Pod") if not is_ending(pod)]
            workers = {p["metadata"]["name"] for p in listed if _component(p) in POOLS}
            assert len(workers) == sum(self._replicas(pool) for pool in POOLS), workers
            assert len({namespace_of(p) for p in listed if _component(p) in POOLS}) == 1
            self.unlisted.append(
                sum(
                    len(workers - {p["metadata"]["name"] for p in routing.known_to(frontend)})
                    for frontend in listed
                    if _component(frontend) == "frontend"
                )
            )

    def _replicas(self, component: str) -> int:
        return int(yaml.safe_load(self.cluster.graph.read_text())[component]["replicas"])

    def _wait(self, seconds: int) -> None:
        self.cluster.clock.sleep(seconds)

    def _drain(self, node: str) -> None:
        """As `kubectl drain`: cordon, and evict what the disruption budgets permit."""
        store = self.cluster.api.store
        key = ("v1", "nodes", "", node)
        store.write(key, {**store.objects[key], "spec": {"unschedulable": True}}, trusted=True)
        for _ in range(200):
            left = [p for p in store.of_kind("Pod") if p["spec"].get("nodeName") == node]
            if not left:
                break
            for pod in left:
                self._evict(pod)
            self._wait(EVICTION_S)
        else:
            raise AssertionError(f"pods are left on {node}")
        store.write(key, {**store.objects[key], "spec": {}}, trusted=True)

    def _evict(self, pod: Object) -> None:
        with contextlib.suppress(ApiError):  # a budget refuses it: 429
            pods.evict(self.cluster.api.store, key_of(pod), {})


def _load_s(seconds: Mapping[str, int], args: list[str]) -> int:
    """Seconds until the process with these arguments serves."""
    return next((seconds[pool] for pool in POOLS if pool in args), 3)


def _component(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("penstock/component", ""))
