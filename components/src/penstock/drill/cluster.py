"""The faults of `penstock drill --cluster`, and the run that injects them into a release."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from penstock.cluster import pods as actions
from penstock.cluster.api import Api
from penstock.cluster.api_errors import UnavailableError
from penstock.cluster.pods import Pod, forwarded, list_pods
from penstock.cluster.progress import OwnObjects, read_progress
from penstock.cluster.release import Release, require_installed
from penstock.cluster.rights import FAULT_RIGHTS, Preflight, Verb, needs_to_drill
from penstock.cluster.workloads import WORKLOAD_KINDS, workloads
from penstock.drill.faults import Fault, Rotation, split_choices
from penstock.drill.run import DrillOptions, DrillResult, drill_endpoint
from penstock.drill.targets import Target, first_model
from penstock.errors import ClusterError, DrillError, Problem, UsageError
from penstock.helm import ReleaseTarget
from penstock.manifests.deployment import Role
from penstock.text.names import did_you_mean
from penstock.text.numbers import limit_text

NODE = "node"  # the target of drain
DRAIN = "drain"
KINDS: Mapping[str, str] = {
    "delete": "delete a pod",
    "evict": "evict a pod, which a disruption budget may refuse",
    "kill": "send SIGTERM to process 1 of a pod's container, which the kubelet then restarts",
    DRAIN: "cordon a node, evict the release's pods on it, and uncordon it",
}
DEFAULT = ("delete", "evict", "kill")  # drain needs rights in the whole cluster
DRAIN_S = 300.0  # how long a node stays cordoned if its pods do not become ready elsewhere
assert KINDS.keys() == FAULT_RIGHTS.keys()


@dataclass(frozen=True, order=True, kw_only=True)
class ClusterChoice:
    """A fault, and the component or the node that it is restricted to."""

    kind: str
    target: str | None = None

    def __str__(self) -> str:
        return self.kind + (f":{self.target}" if self.target else "")


def choose(text: str) -> list[ClusterChoice]:
    """The choices in ``KIND[:POOL],…``; for drain ``drain[:NODE]``. Raises UsageError."""
    if text == "default":
        return [ClusterChoice(kind=kind) for kind in DEFAULT]
    return [ClusterChoice(kind=kind, target=target) for kind, target in split_choices(text, KINDS)]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What can be injected now, and why the rest cannot."""

    # Kind, and component or node.
    possible: tuple[tuple[str, str], ...]
    # One line for each target that is left out.
    skipped: tuple[str, ...]


def candidates(
    choices: Sequence[ClusterChoice],
    pods: Sequence[Pod],
    components: Sequence[str],
    *,
    may_remove_last: bool,
) -> Candidates:
    """Without ``may_remove_last``, a component keeps a ready pod. Raises UsageError for a target
    that does not exist or that is not possible although it is named."""
    possible: list[tuple[str, str]] = []
    skipped: dict[str, None] = {}
    nodes = sorted({pod.node for pod in pods if pod.node and pod.is_ready})
    for choice in choices:
        known = nodes if choice.kind == DRAIN else list(components)
        if choice.target and choice.target not in known:
            raise UsageError(_unknown(choice, known))
        for target in [choice.target] if choice.target else known:
            reason = "" if may_remove_last else _last(choice.kind, target, pods)
            if not reason:
                possible.append((choice.kind, target))
            elif choice.target:
                raise UsageError(
                    f"--faults {choice}: {reason}. Raise its replicas, or pass --remove-last. "
                    "Nothing was touched."
                )
            else:
                skipped[f"skipped {choice.kind}:{target}: {reason}"] = None
    return Candidates(possible=tuple(dict.fromkeys(possible)), skipped=tuple(skipped))


def _unknown(choice: ClusterChoice, known: Sequence[str]) -> str:
    what = "node with ready pods of the release" if choice.kind == DRAIN else "component"
    near = did_you_mean(str(choice.target), known) or f"It has {', '.join(known) or 'none'}."
    return f"--faults {choice}: the release has no {what} `{choice.target}`. {near}"


def _last(kind: str, target: str, pods: Sequence[Pod]) -> str:
    """Why the fault would leave a component without a ready pod; "" if it would not."""
    ready = Counter(pod.component for pod in pods if pod.is_ready)
    if kind != DRAIN:
        return f"{target} has {ready[target]} ready pod(s)" if ready[target] < 2 else ""
    there = Counter(pod.component for pod in pods if pod.is_ready and pod.node == target)
    left = [name for name, count in there.items() if ready[name] == count]
    return f"all ready pods of {', '.join(sorted(left))} are on it" if left else ""


def fault_on(kind: str, victims: Sequence[Pod], pods: Sequence[Pod]) -> Fault:
    """A fault whose victims are pods of one component, or the pods of one node."""
    first = victims[0]
    names = {pod.component for pod in victims}
    uids = {pod.uid for pod in victims}
    survivors = {pod.component for pod in pods if pod.is_ready and pod.uid not in uids}
    is_drain = kind == DRAIN
    return Fault(
        kind=kind,
        target=f"{NODE}.{first.node}" if is_drain else f"{first.component}.{first.name}",
        role=Role.FRONTEND if Role.FRONTEND in names else None if is_drain else _role(first),
        has_survivor=names <= survivors,
        lasts_s=DRAIN_S if is_drain else 0.0,
        is_replaced=True,
    )


def _role(pod: Pod) -> Role:
    known: Iterator[Role] = (role for role in Role if role == pod.component)
    return next(known, Role.WORKER)


POLL_S = 0.5
EVICTION_RETRY_S = 5.0  # as `kubectl drain` waits after a refusal
UNCORDON_ATTEMPTS, UNCORDON_WAIT_S = 10, 3.0


class ClusterRelease(Target):
    """An installed release whose pods are ready."""

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
        # The state of the current fault.
        self._before: list[Pod] = []
        self._victims: list[Pod] = []
        self._refused: list[Pod] = []
        self._retry_at = 0.0
        self._outcome = ""
        self._cordoned: str | None = None
        choice_now = self._candidates()
        for line in choice_now.skipped:
            say(line)
        if not choice_now.possible:
            raise DrillError(
                "no fault is possible without removing the last ready pod of a "
                "component; nothing was changed",
                place=f"release {api.namespace}/{name}",
                fix="Raise the replicas of a component to 2, or pass --remove-last.",
            )
        self.possible = choice_now.possible

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
                f"{chosen[0]}:{chosen[1]} would remove the last ready pod of a "
                "component: fewer pods are ready than at the start. It was not injected",
                place=f"release {self._api.namespace}/{self._name}",
                fix="Wait until `penstock status --cluster` shows all pods as ready.",
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
        foreign = actions.other_pods(self._api, node, self._before)
        left = "unknown other pods" if foreign is None else f"{len(foreign)} other pods"
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
        was = Counter(pod.component for pod in self._before if pod.is_ready)
        desired = {
            name: w.replicas * w.nodes for name, w in workloads(self._api.existing(objects)).items()
        }
        return {name: min(count, was[name]) for name, count in desired.items()}

    def outcome(self) -> str:
        """What the report says about the current fault."""
        if self._refused and not self._outcome.startswith("not possible"):
            names = ", ".join(pod.name for pod in self._refused)
            return f"{self._outcome}; not evicted: {names}".removeprefix("; ")
        return self._outcome


TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class ClusterDrill:
    """A drill of one release."""

    target: ReleaseTarget
    choices: Sequence[ClusterChoice]
    options: DrillOptions
    # OpenAI base URL with /v1; None: a port that is forwarded to the frontends.
    url: str | None = None
    # Name of the model to request; None: the first that the endpoint lists.
    model: str | None = None
    # Headers of the requests to ``url``.
    headers: Mapping[str, str] = field(default_factory=dict)
    # Whether a component may lose its last ready pod.
    may_remove_last: bool = False

    def run(self, confirm: Callable[[str], None], say: Callable[[str], None]) -> DrillResult:
        """Raises ClusterError, DrillError, UsageError; ``confirm`` may raise too."""
        api = Api.connect(self.target)
        release = self._ready_release(api, say)
        faults = ClusterRelease(
            api,
            release,
            self.target.name,
            self.choices,
            self.options.seed,
            say,
            may_remove_last=self.may_remove_last,
        )
        confirm(self._plan(api, faults))
        try:
            with self._endpoint(api, release) as (url, clients):
                headers = self.headers if self.url else None
                with httpx.Client(
                    base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=self.url is not None
                ) as client:
                    model = self.model or first_model(client, url)
                faults.serve_at(url, model, clients)
                return drill_endpoint(faults, self.options, headers, say)
        finally:
            faults.close()

    def _ready_release(self, api: Api, say: Callable[[str], None]) -> Release:
        kinds = sorted({choice.kind for choice in self.choices})
        Preflight(
            api,
            self.target,
            Verb.DRILL,
            say,
            lambda before, after: needs_to_drill(before, kinds, forwards=self.url is None),
        ).require()
        release = require_installed(self.target, api)
        progress = read_progress(OwnObjects(api, self.target), release)
        if not progress.is_done:
            raise DrillError(
                f"is not ready: {progress}; nothing was changed",
                place=f"release {self.target}",
                fix="Wait until `penstock status --cluster` shows it as ready.",
            )
        return release

    def _plan(self, api: Api, faults: ClusterRelease) -> str:
        """What the drill will do, for the user's confirmation."""
        context = f", context {self.target.context}" if self.target.context else ""
        targets: dict[str, list[str]] = {}
        for kind, target in faults.possible:
            targets.setdefault(kind, []).append(target)
        options = self.options
        minutes = options.minutes and limit_text(options.minutes)
        length = f"for {minutes} min" if minutes else f"{options.count} faults"
        return "\n".join(
            [
                f"The drill will change the release {self.target} on "
                f"{api.configuration.host}{context}:",
                *(f"  {KINDS[kind]}: {', '.join(names)}" for kind, names in targets.items()),
                f"  {length}, one at a time, under {options.streams} concurrent requests to "
                f"{self.url or 'a port forwarded to the frontends'}",
            ]
        )

    @contextlib.contextmanager
    def _endpoint(
        self, api: Api, release: Release
    ) -> Iterator[tuple[str, Callable[[str], tuple[int, ...]] | None]]:
        """The base URL, and the ports of a pod's clients if they are known."""
        if self.url:
            yield self.url, None
            return
        with forwarded(api, release, self.target) as forward:
            yield f"http://127.0.0.1:{forward.port}/v1", forward.clients_of
