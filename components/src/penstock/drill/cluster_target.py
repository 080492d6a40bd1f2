"""A release on a cluster as the target of a drill. It stays in the release's namespace, except that
`drain` cordons a node."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.cluster import pods as actions
from penstock.cluster.api import Api
from penstock.cluster.api_errors import UnavailableError
from penstock.cluster.pods import Pod, list_pods
from penstock.cluster.release import Release
from penstock.cluster.workloads import WORKLOAD_KINDS, workloads
from penstock.drill.cluster_faults import (
    DRAIN,
    NODE,
    Candidates,
    ClusterChoice,
    candidates,
    fault_on,
)
from penstock.drill.faults import Fault, Rotation
from penstock.errors import ClusterError, DrillError, Problem

POLL_S = 0.5
EVICTION_RETRY_S = 5.0  # as `kubectl drain` waits after a refusal
UNCORDON_ATTEMPTS, UNCORDON_WAIT_S = 10, 3.0


class ClusterRelease:
    """An installed release whose pods are ready."""

    is_mocked: bool | None = None

    def __init__(
        self,
        api: Api,
        release: Release,
        name: str,
        choices: Sequence[ClusterChoice],
        seed: int,
        say: Callable[[str], None],
        *,
        may_remove_last: bool = False,
    ) -> None:
        """Raises ClusterError, UsageError, DrillError if no fault is possible."""
        self._api, self._release, self._name, self._say = api, release, name, say
        self._choices, self._may_remove_last = choices, may_remove_last
        self._random = random.Random(seed)
        self._rotation = Rotation[tuple[str, str]](seed)
        self._components = [n for n, w in workloads(release.objects).items() if w.replicas]
        # Set by `serve_at`.
        self.endpoint = self.model = ""
        self._clients: Callable[[str], tuple[int, ...]] | None = None
        # Of the current fault.
        self._before: list[Pod] = []
        self._victims: list[Pod] = []
        self._refused: list[Pod] = []
        self._retry_at = 0.0
        self._outcome = ""
        self._cordoned: str | None = None
        found = self._candidates()
        for line in found.skipped:
            say(line)
        if not found.possible:
            raise DrillError(
                Problem(
                    place=f"release {api.namespace}/{name}",
                    message="no fault is possible without removing the last ready pod of a "
                    "component; nothing was changed",
                    fix="Raise the replicas of a component to 2, or pass --remove-last.",
                )
            )
        self.possible = found.possible

    def serve_at(
        self, endpoint: str, model: str, clients: Callable[[str], tuple[int, ...]] | None
    ) -> None:
        """``clients``: the ports of the clients of a frontend's pod; None: not known."""
        self.endpoint, self.model, self._clients = endpoint, model, clients

    def next(self) -> Fault | None:
        """Raises DrillError if a component has no other ready pod left."""
        self._before = list_pods(self._api, self._name)
        possible = self._candidates().possible
        chosen = self._rotation.next(self.possible)
        if chosen not in possible:
            raise DrillError(
                Problem(
                    place=f"release {self._api.namespace}/{self._name}",
                    message=f"{chosen[0]}:{chosen[1]} would remove the last ready pod of a "
                    "component: fewer pods are ready than at the start. It was not injected",
                    fix="Wait until `penstock status --cluster` shows all pods as ready.",
                )
            )
        self._victims = self._choose(*chosen)
        self._refused, self._outcome = [], ""
        return fault_on(chosen[0], self._victims, self._before)

    def _candidates(self) -> Candidates:
        pods = self._before or list_pods(self._api, self._name)
        return candidates(
            self._choices, pods, self._components, may_remove_last=self._may_remove_last
        )

    def _choose(self, kind: str, target: str) -> list[Pod]:
        ready = [pod for pod in self._before if pod.is_ready]
        if kind == DRAIN:
            return [pod for pod in ready if pod.node == target]
        return [self._random.choice([pod for pod in ready if pod.component == target])]

    @contextlib.contextmanager
    def applied(self, fault: Fault) -> Iterator[tuple[int, ...] | None]:
        clients = self._clients_of_victims()
        if fault.kind == DRAIN:
            with self._drained(self._victims[0].node):
                yield clients
            return
        (pod,) = self._victims
        if fault.kind == "kill":
            actions.kill(self._api, pod)
        else:
            act = actions.delete if fault.kind == "delete" else actions.evict
            if reason := act(self._api, pod):
                self._refused, self._outcome = [pod], f"not possible: {reason}"
                self._say(f"{fault.kind} {fault.target}: {self._outcome}")
        yield clients

    def _clients_of_victims(self) -> tuple[int, ...] | None:
        if self._clients is None:
            return None
        return tuple(port for pod in self._victims for port in self._clients(pod.name))

    @contextlib.contextmanager
    def _drained(self, node: str) -> Iterator[None]:
        """A node that was cordoned before is left alone."""
        if actions.is_cordoned(self._api, node):
            self._refused = list(self._victims)
            self._outcome = "not possible: the node is already cordoned"
            self._say(f"drain {NODE}.{node}: {self._outcome}")
            yield
            return
        others = actions.other_pods(self._api, node, self._before)
        left = "unknown other pods" if others is None else f"{len(others)} other pods"
        self._say(f"drain {NODE}.{node}: leaving {left}; to undo: kubectl uncordon {node}")
        self._outcome = f"left {left}"
        self._cordoned = node
        try:
            actions.set_cordoned(self._api, node, is_cordoned=True)
            self._evict(self._victims)
            yield
        finally:
            self.close()

    def _evict(self, pods: Sequence[Pod]) -> None:
        self._refused = []
        for pod in pods:
            if reason := actions.evict(self._api, pod):
                self._refused.append(pod)
                self._say(f"eviction of {pod.name}: {reason}")
        self._retry_at = time.monotonic() + EVICTION_RETRY_S

    def close(self) -> None:
        """Uncordon the node that this drill has cordoned. Raises ClusterError."""
        for attempt in range(UNCORDON_ATTEMPTS):
            if self._cordoned is None:
                return
            try:
                actions.set_cordoned(self._api, self._cordoned, is_cordoned=False)
                self._say(f"uncordoned {self._cordoned}")
                self._cordoned = None
            except ClusterError as error:
                if attempt == UNCORDON_ATTEMPTS - 1:
                    raise ClusterError(
                        *error.problems,
                        Problem(
                            place=f"node {self._cordoned}",
                            message="is still cordoned",
                            fix=f"Run `kubectl uncordon {self._cordoned}`.",
                        ),
                    ) from None
                time.sleep(UNCORDON_WAIT_S)

    def is_recovered(self, fault: Fault) -> bool:
        """Whether the victims are replaced, and as many pods are ready as before."""
        time.sleep(POLL_S)
        try:
            if fault.kind == DRAIN and self._cordoned and time.monotonic() >= self._retry_at:
                self._evict(self._refused)
            return self._is_settled(list_pods(self._api, self._name), fault)
        except UnavailableError:
            return False

    def _is_settled(self, pods: Sequence[Pod], fault: Fault) -> bool:
        now = {pod.uid: pod for pod in pods}
        refused = {pod.uid for pod in self._refused}
        if fault.kind == DRAIN and refused and self._cordoned:
            return False  # to be evicted again
        for victim in self._victims:
            current = now.get(victim.uid)
            if current is None or victim.uid in refused:
                continue
            is_restarted = current.restarts > victim.restarts and current.is_ready
            if fault.kind != "kill" or not is_restarted:
                return False
        ready = Counter(pod.component for pod in pods if pod.is_ready)
        return all(ready[name] >= count for name, count in self._desired().items())

    def _desired(self) -> Mapping[str, int]:
        """The ready pods that each component should have; fewer after an autoscaler's change."""
        objects = [o for o in self._release.objects if o["kind"] in WORKLOAD_KINDS]
        live = [found for o in objects if (found := self._api.get(o)) is not None]
        was = Counter(pod.component for pod in self._before if pod.is_ready)
        desired = {name: w.replicas * w.nodes for name, w in workloads(live).items()}
        return {name: min(count, was[name]) for name, count in desired.items()}

    def outcome(self) -> str:
        """What the report says about the current fault."""
        if self._refused and not self._outcome.startswith("not possible"):
            names = ", ".join(pod.name for pod in self._refused)
            return f"{self._outcome}; not evicted: {names}".removeprefix("; ")
        return self._outcome

    def processes(self) -> Mapping[str, int]:
        return {}
