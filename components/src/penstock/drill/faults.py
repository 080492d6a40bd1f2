"""The faults of a drill, and the seeded order in which they are injected."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from penstock.graph.load import read_text_file
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import FileDiscoveryState, LocalState, ReplicaStatus
from penstock.manifests.deployment import Role

SHORT_S, LONG_S, SUSPENSION_S = 3.0, 16.0, 15.0
GRAPH = "graph"  # the target of a fault that affects every process
WORKERS = (Role.PREFILL, Role.DECODE, Role.WORKER)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. `inject` returns when it is over; recovery is the task of penstock."""

    kind: str
    target: str
    """`decode.0`, or `graph`."""
    role: Role | None
    has_survivor: bool
    pids: tuple[int, ...] = ()
    """The processes that are signaled."""
    is_replaced: bool = False
    """The graph has recovered only when these processes are gone."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A class of faults. ``of_process``: it affects one process, and not the graph."""

    name: str
    of_process: bool
    inject: Callable[[Fault, GraphProcess], None]
    is_replaced: bool = False
    needs_files: bool = False
    """Only with discovery in files."""


def _signal(number: signal.Signals) -> Callable[[Fault, GraphProcess], None]:
    def inject(fault: Fault, graph: GraphProcess) -> None:
        _send(fault.pids, number)

    return inject


def _suspend(seconds: float) -> Callable[[Fault, GraphProcess], None]:
    def inject(fault: Fault, graph: GraphProcess) -> None:
        pids = fault.pids or (graph.pid, *(r.pid for r in current(graph).replicas))
        _send(pids, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            _send(pids, signal.SIGCONT)

    return inject


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # penstock has replaced it meanwhile
            os.kill(pid, number)


def _remove_discovery(fault: Fault, graph: GraphProcess) -> None:
    discovery = current(graph).discovery
    if isinstance(discovery, FileDiscoveryState):
        shutil.rmtree(discovery.folder, ignore_errors=True)


def _scale(fault: Fault, graph: GraphProcess) -> None:
    """Add a replica to each pool, wait until it is ready, and remove it."""
    with _edited(graph, 1):
        graph.wait_for(lambda _: is_settled(current(graph)))


def _edit_twice(fault: Fault, graph: GraphProcess) -> None:
    """A second edit before the first one has been carried out."""
    with _edited(graph, 2):
        time.sleep(0.5)


def _invalid_edit(fault: Fault, graph: GraphProcess) -> None:
    text = graph.graph.read_text()
    graph.graph.write_text(f"{text}\nreplcas: 1\n")
    try:
        graph.wait_for(lambda state: state["rejected_edit"])
    finally:
        graph.graph.write_text(text)
    graph.wait_for(lambda state: not state["rejected_edit"])


@contextlib.contextmanager
def _edited(graph: GraphProcess, more: int) -> Iterator[None]:
    """Worker pools with more replicas."""
    text = graph.graph.read_text()
    state = current(graph)
    pools = {r.program for r in state.replicas if r.role in WORKERS}
    sizes = {pool: state.desired_replicas[pool] + more for pool in pools}
    graph.graph.write_text(set_replicas(text, sizes, str(graph.graph)))
    try:
        time.sleep(1.0)  # an editor saves once; `up` reads a file that has not changed for 0.2 s
        yield
    finally:
        graph.graph.write_text(text)


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="kill", of_process=True, inject=_signal(signal.SIGKILL), is_replaced=True),
        Kind(name="term", of_process=True, inject=_signal(signal.SIGTERM), is_replaced=True),
        Kind(name="stop-short", of_process=True, inject=_suspend(SHORT_S)),
        Kind(name="stop-long", of_process=True, inject=_suspend(LONG_S), is_replaced=True),
        Kind(name="suspend-all", of_process=False, inject=_suspend(SUSPENSION_S)),
        Kind(name="remove-discovery", of_process=False, inject=_remove_discovery, needs_files=True),
        Kind(name="scale", of_process=False, inject=_scale),
        Kind(name="edit-twice", of_process=False, inject=_edit_twice),
        Kind(name="invalid-edit", of_process=False, inject=_invalid_edit),
    )
}


def current(graph: GraphProcess) -> LocalState:
    """The state that `penstock status` shows."""
    return LocalState.model_validate(graph.wait_for(lambda state: True), strict=False)


def is_settled(state: LocalState) -> bool:
    """Whether exactly the desired replicas run, and all are ready."""
    if any(replica.state is not ReplicaState.READY for replica in state.replicas):
        return False
    counts = dict.fromkeys(state.desired_replicas, 0)
    for replica in state.replicas:
        if replica.program in counts:
            counts[replica.program] += 1
    return counts == dict(state.desired_replicas)


class Schedule:
    """Every kind × program once, in seeded random order, before any is repeated."""

    def __init__(self, kinds: Sequence[str], seed: int) -> None:
        self._kinds = [KINDS[name] for name in kinds]
        self._random = random.Random(seed)
        self._left: list[tuple[str, str]] = []

    def next(self, state: LocalState) -> Fault:
        """The next fault, on a process that runs now."""
        if not self._left:
            self._left = self._all(state)
            self._random.shuffle(self._left)
        name, program = self._left.pop()
        if program == GRAPH:
            return Fault(kind=name, target=GRAPH, role=None, has_survivor=False)
        running = [r for r in state.replicas if r.program == program]
        if not running:
            return self.next(state)
        return _of_process(KINDS[name], self._random.choice(running), running, state)

    def _all(self, state: LocalState) -> list[tuple[str, str]]:
        programs = sorted({replica.program for replica in state.replicas})
        found: list[tuple[str, str]] = []
        for kind in self._kinds:
            if kind.of_process:
                found += [(kind.name, program) for program in programs]
            elif not kind.needs_files or isinstance(state.discovery, FileDiscoveryState):
                found.append((kind.name, GRAPH))
        return found


def _of_process(
    kind: Kind, victim: ReplicaStatus, running: Sequence[ReplicaStatus], state: LocalState
) -> Fault:
    is_service = victim.role is Role.OTHER
    is_endpoint = victim.program == "endpoint"
    survivor = len(running) > 1 or (is_service and not is_endpoint)
    if victim.program == "etcd" and kind.name == "stop-long":
        survivor = False  # the workers' leases expire after 10 s, and then all of them exit
    if victim.role is Role.FRONTEND and not state.envoy:
        survivor = False  # the first frontend is the endpoint
    return Fault(
        kind=kind.name,
        target=victim.name,
        role=None if is_service else victim.role,
        has_survivor=survivor,
        pids=(victim.pid,),
        is_replaced=kind.is_replaced,
    )


def copy_of(graph: Path, folder: Path) -> Path:
    """A copy that the drill may edit. InputError when the graph cannot be read."""
    copy = folder / graph.name
    copy.write_text(read_text_file(graph), "utf-8")
    return copy
