"""The kinds of faults that the drill itself can inject into a graph."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from penstock.drill.faults import (
    Apply,
    Choice,
    Fault,
    Kind,
    Need,
    current,
    is_settled,
    split_choices,
)
from penstock.drill.graph_process import GraphProcess
from penstock.drill.isolation import full_disk, lost_packets, partitioned, slow_network
from penstock.errors import UsageError
from penstock.files import write_file
from penstock.graph.edit import scalable_pools, set_replicas
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import FileDiscoveryState
from penstock.manifests.deployment import WORKERS

SHORT_S, LONG_S, SUSPENSION_S = 1.0, 16.0, 15.0
PARTITION_S = 5.0
NETWORK_S, LOST_PERCENT = 8.0, 5
SLOW_KBIT_PER_S, SLOWEST_S = 1000, 0.5  # the traffic of the clients needs more
DISK_S = 5.0
START_S = 300.0
FRONTEND = "frontend"
EDITED = "DYN_PENSTOCK_DRILL"  # a variable that nothing reads


def _signal(number: signal.Signals) -> Apply:
    @contextlib.contextmanager
    def apply(fault: Fault, graph: GraphProcess) -> Iterator[None]:
        send(fault.pids, number)
        send(fault.pids, signal.SIGCONT)  # it may be suspended: `LocalGraph.applied`
        yield

    return apply


@contextlib.contextmanager
def _suspended(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    pids = fault.pids or (graph.pid, *(r.pid for r in current(graph).replicas))
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pids, signal.SIGCONT)


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to those processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # penstock has replaced it meanwhile
            os.kill(pid, number)


@contextlib.contextmanager
def _without_supervisor(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    """`penstock up` is killed, and started again as a user or systemd would."""
    os.kill(graph.pid, signal.SIGKILL)
    graph.wait_ended()
    graph.start()
    graph.wait_ready(START_S)
    yield


@contextlib.contextmanager
def _without_discovery(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    discovery = current(graph).discovery
    if isinstance(discovery, FileDiscoveryState):
        shutil.rmtree(discovery.folder, ignore_errors=True)
    yield


@contextlib.contextmanager
def _scaled(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    """Give each pool one more replica, until it is ready."""
    sizes = _with_more(graph, 1)
    with _edited(graph, _resized(graph, sizes)):
        graph.wait_for(lambda state: sizes.items() <= state["desired_replicas"].items())
        graph.wait_for(lambda _: is_settled(current(graph)), START_S)
        yield


@contextlib.contextmanager
def _edited_twice(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    """Save a second edit before the first one has been applied, and undo both the same way."""
    old, text = _workers(graph), graph.graph.read_text("utf-8")
    larger = _resized(graph, _with_more(graph, 2)) if scalable_pools(text) else text
    with _edited(graph, _configured(larger, "1")), _edited(graph, _configured(text, "2")):
        new = _replaced(graph, old)
        yield
    _replaced(graph, new)


@contextlib.contextmanager
def _reconfigured(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    """Replace all workers by changing a variable of their environment, and change it back."""
    old = _workers(graph)
    with _edited(graph, _configured(graph.graph.read_text("utf-8"), "1")):
        new = _replaced(graph, old)
        yield
    _replaced(graph, new)


@contextlib.contextmanager
def _reverted(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    """Undo a change of all workers as soon as one of the new ones is ready."""
    old = _workers(graph)
    with _edited(graph, _configured(graph.graph.read_text("utf-8"), "1")):
        graph.wait_for(lambda _: not _workers(graph, ReplicaState.READY) <= old, START_S)
    graph.wait_for(lambda _: is_settled(current(graph)), START_S)
    yield


@contextlib.contextmanager
def _new_frontends(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    """Replace all frontends by changing a variable of their environment, and change it back."""
    old = set(graph.pids(FRONTEND))
    with _edited(graph, _configured(graph.graph.read_text("utf-8"), "1", FRONTEND)):
        graph.wait_for(lambda s: not old & {r["pid"] for r in s["replicas"]}, START_S)
        graph.wait_for(lambda _: is_settled(current(graph)), START_S)
        yield


def _configured(text: str, value: str, section: str = "engine") -> str:
    """The graph with a variable of the environment that nothing reads."""
    content = yaml.safe_load(text)
    part = content.get(section) or {}
    env = (part.get("env") or {}) | {EDITED: value}
    return yaml.safe_dump(content | {section: part | {"env": env}}, sort_keys=False)


def _workers(graph: GraphProcess, state: ReplicaState | None = None) -> set[int]:
    """The pids of all workers, or of those in ``state``."""
    replicas = current(graph).replicas
    return {r.pid for r in replicas if r.role in WORKERS and state in (None, r.state)}


def _replaced(graph: GraphProcess, old: set[int]) -> set[int]:
    """Wait until other workers serve; return their pids."""
    graph.wait_for(lambda s: not old & {r["pid"] for r in s["replicas"]}, START_S)
    graph.wait_for(lambda _: is_settled(current(graph)), START_S)
    return _workers(graph)


@contextlib.contextmanager
def _invalid(fault: Fault, graph: GraphProcess) -> Iterator[None]:
    with _edited(graph, graph.graph.read_text("utf-8") + "\nreplcas: 1\n"):
        graph.wait_for(lambda state: state["rejected_edit"])
        yield
    graph.wait_for(lambda state: not state["rejected_edit"])


def _with_more(graph: GraphProcess, more: int) -> dict[str, int]:
    """More replicas of each pool that is not autoscaled."""
    desired = current(graph).desired_replicas
    return {pool: desired[pool] + more for pool in scalable_pools(graph.graph.read_text("utf-8"))}


def _resized(graph: GraphProcess, sizes: Mapping[str, int]) -> str:
    return set_replicas(graph.graph.read_text("utf-8"), sizes, str(graph.graph))


@contextlib.contextmanager
def _edited(graph: GraphProcess, changed: str) -> Iterator[None]:
    text = graph.graph.read_text("utf-8")
    write_file(graph.graph, changed)
    try:
        time.sleep(1.0)  # an editor saves once; `up` reads a file that has not changed for 0.2 s
        yield
    finally:
        write_file(graph.graph, text)


def _of_process(name: str, apply: Apply, lasts_s: float = 0.0, **more: Any) -> Kind:
    return Kind(name=name, of_process=True, apply=apply, lasts_s=lasts_s, **more)


def _of_graph(name: str, apply: Apply, lasts_s: float = 0.0, **more: Any) -> Kind:
    return Kind(name=name, of_process=False, apply=apply, lasts_s=lasts_s, **more)


NETWORK = {"needs": Need.ISOLATION, "stalls": True, "is_of_network": True}
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        _of_process("kill", _signal(signal.SIGKILL), is_replaced=True, ends_requests=True),
        _of_process("term", _signal(signal.SIGTERM), is_replaced=True),
        _of_process("stop-short", _suspended, SHORT_S, stalls=True),
        _of_process(
            "stop-long", _suspended, LONG_S, is_replaced=True, stalls=True, ends_requests=True
        ),
        _of_process(
            "partition",
            lambda fault, _: partitioned(fault.pids),
            PARTITION_S,
            ends_requests=True,
            **NETWORK,
        ),
        _of_graph("suspend-all", _suspended, SUSPENSION_S, stalls=True),
        _of_graph("remove-discovery", _without_discovery, needs=Need.FILES),
        _of_graph("packet-loss", lambda *_: lost_packets(LOST_PERCENT), NETWORK_S, **NETWORK),
        _of_graph(
            "slow-network",
            lambda *_: slow_network(SLOW_KBIT_PER_S, SLOWEST_S),
            NETWORK_S,
            **NETWORK,
        ),
        _of_graph(
            "disk-full", lambda _, graph: full_disk(graph.log.parent), DISK_S, needs=Need.ISOLATION
        ),
        _of_graph("kill-supervisor", _without_supervisor, is_outage=True),
        _of_graph("scale", _scaled, needs=Need.REPLICAS),
        _of_graph("edit-twice", _edited_twice),
        _of_graph("edit-config", _reconfigured),
        _of_graph("edit-frontend", _new_frontends, needs=Need.ENVOY),
        _of_graph("revert", _reverted),
        _of_graph("invalid-edit", _invalid),
    )
}


def choose(text: str) -> list[Choice]:
    """The choices in ``KIND[:PROGRAM],…``. UsageError for an unknown kind."""
    choices: list[Choice] = []
    for name, program in split_choices(text, KINDS):
        if program and not KINDS[name].of_process:
            raise UsageError(
                f"--faults {name}:{program}: {name} affects the whole graph, not one program"
            )
        choices.append(Choice(kind=KINDS[name], program=program))
    return choices
