"""Kinds of faults, and the seeded order in which they are injected."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Generic, TypeVar

from penstock.drill.graph_process import GraphProcess
from penstock.errors import UsageError
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import FileDiscoveryState, LocalState, ReplicaStatus, state_of
from penstock.manifests.deployment import Role
from penstock.text.names import did_you_mean

T = TypeVar("T")
GRAPH = "graph"  # the target of a fault that affects every process


class Need(StrEnum):
    """A precondition of a kind of fault."""

    FILES = "files"  # discovery in files
    ISOLATION = "isolation"  # namespaces of the drill's own
    REPLICAS = "replicas"  # a pool that is not autoscaled
    ENVOY = "envoy"  # one endpoint for several frontends


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a fault does, whatever its target."""

    # Seconds between applying and ending it; less if the target is replaced earlier.
    lasts_s: float = 0.0
    # The graph has recovered only when the target is gone.
    is_replaced: bool = False
    # Nothing can serve until the recovery.
    is_outage: bool = False
    # It suspends processes or their connections, so that streams wait.
    stalls: bool = False
    # It drops or delays packets.
    is_of_network: bool = False
    # It ends processes without a drain: the requests of workers must migrate.
    ends_requests: bool = False


@dataclass(frozen=True, kw_only=True)
class Fault(Effect):
    """One fault. Its recovery is the task of penstock."""

    kind: str
    # `decode.0`, or `graph`.
    target: str
    role: Role | None
    # Whether another process can serve the affected requests.
    has_survivor: bool
    # The target; none for the graph.
    pids: tuple[int, ...] = ()
    # HTTP port of a frontend or an Envoy.
    port: int | None = None


# Applies the fault when entered and ends it when left.
Apply = Callable[[Fault, GraphProcess], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Kind(Effect):
    """A class of faults. ``of_process``: it affects one process; otherwise the whole graph."""

    name: str
    of_process: bool
    apply: Apply
    needs: Need | None = None

    @property
    def effect(self) -> dict[str, Any]:
        """The fields of `Effect`, for a fault of this kind."""
        return {effect.name: getattr(self, effect.name) for effect in fields(Effect)}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A kind, and the program that it is restricted to."""

    kind: Kind
    program: str | None = None

    def __str__(self) -> str:
        return self.kind.name + (f":{self.program}" if self.program else "")


def split_choices(text: str, kinds: Collection[str]) -> list[tuple[str, str | None]]:
    """The kinds and targets in ``KIND[:TARGET],…``. UsageError for an unknown kind."""
    choices: list[tuple[str, str | None]] = []
    for part in (part.strip() for part in text.split(",")):
        name, _, target = part.partition(":")
        if name not in kinds:
            fix = did_you_mean(name, kinds) or f"Use some of {', '.join(kinds)}."
            message = f"there is no fault `{name}`"
            raise UsageError(message, place="--faults", fix=fix)
        choices.append((name, target or None))
    return choices


class Rotation(Generic[T]):
    """Every item once, in seeded random order, before any is repeated."""

    def __init__(self, seed: int | random.Random) -> None:
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)
        self._left: list[T] = []

    @property
    def is_over(self) -> bool:
        """Whether every item was returned since `next` was last given new ones."""
        return not self._left

    def next(self, items: Sequence[T]) -> T:
        """The next item; of ``items`` if every one of the earlier call was returned."""
        if not self._left:
            self._left = list(items)
            self._random.shuffle(self._left)
        return self._left.pop()


class Schedule:
    """Every kind × program once, in seeded random order, before any is repeated."""

    def __init__(self, choices: Sequence[Choice], seed: int) -> None:
        self._choices = tuple(choices)
        self._random = random.Random(seed)
        self._rotation = Rotation[tuple[Kind, str]](self._random)

    def next(self, state: LocalState) -> Fault | None:
        """The next fault, on a process that runs now; None if none of the choices is possible."""
        items = self._all(state)
        is_first = True
        while items and (is_first or not self._rotation.is_over):
            is_first = False
            kind, program = self._rotation.next(items)
            running = [r for r in state.replicas if r.program == program]
            if program == GRAPH:
                return Fault(
                    kind=kind.name,
                    target=GRAPH,
                    role=None,
                    has_survivor=not kind.is_outage,
                    **kind.effect,
                )
            if running:
                return _of_process(kind, self._random.choice(running), running, state)
        return None

    def _all(self, state: LocalState) -> list[tuple[Kind, str]]:
        programs = sorted({replica.program for replica in state.replicas})
        has_files = isinstance(state.discovery, FileDiscoveryState)
        items: list[tuple[Kind, str]] = []
        for choice in self._choices:
            missing = {Need.FILES: not has_files, Need.ENVOY: not state.envoy}
            if choice.kind.needs is not None and missing.get(choice.kind.needs):
                continue
            targets = programs if choice.kind.of_process else [GRAPH]
            items += [(choice.kind, t) for t in targets if choice.program in (None, t)]
        return items


def is_settled(state: LocalState) -> bool:
    """Whether exactly the desired replicas run, and all are ready."""
    if any(replica.state is not ReplicaState.READY for replica in state.replicas):
        return False
    counts = dict.fromkeys(state.desired_replicas, 0)
    for replica in state.replicas:
        if replica.program in counts:
            counts[replica.program] += 1
    return counts == dict(state.desired_replicas)


def current(graph: GraphProcess) -> LocalState:
    """The state that `penstock status` shows."""
    return state_of(graph.wait_for(lambda state: True))


def _of_process(
    kind: Kind, victim: ReplicaStatus, running: Sequence[ReplicaStatus], state: LocalState
) -> Fault:
    is_service = victim.role is Role.OTHER
    is_endpoint = victim.program == "endpoint"
    survivor = len(running) > 1 or (is_service and not is_endpoint)
    if victim.role is Role.FRONTEND and not state.envoy:
        survivor = False  # the first frontend is the endpoint
    if is_endpoint and kind.name == "partition":
        survivor = False  # the Envoys share a port
    return Fault(
        kind=kind.name,
        target=victim.name,
        role=None if is_service else victim.role,
        has_survivor=survivor,
        pids=(victim.pid,),
        port=victim.port if is_endpoint or victim.role is Role.FRONTEND else None,
        **kind.effect,
    )
