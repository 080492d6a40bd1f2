"""The order of the faults, and on which processes they may be injected."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.drill.faults import GRAPH, KINDS, Schedule, is_settled
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import EtcdDiscoveryState, LocalState, ReplicaStatus
from penstock.manifests.deployment import Role
from tests.local.builders import running

PROGRAMS = {
    "frontend": (Role.FRONTEND, 2),
    "prefill": (Role.PREFILL, 1),
    "decode": (Role.DECODE, 2),
    "event-broker": (Role.OTHER, 1),
    "endpoint": (Role.OTHER, 2),
}


def replica(program: str, index: int, state: ReplicaState = ReplicaState.READY) -> ReplicaStatus:
    role, _ = PROGRAMS[program]
    made = running().replicas[0]
    name = f"{program}.{index}"
    pid = 1000 + 10 * list(PROGRAMS).index(program) + index
    return made.model_copy(
        update={"name": name, "program": program, "role": role, "state": state, "pid": pid}
    )


def state(envoy: bool = True, **more: object) -> LocalState:
    replicas = tuple(
        replica(program, index)
        for program, (_, count) in PROGRAMS.items()
        for index in range(count)
    )
    desired = {"frontend": 2, "prefill": 1, "decode": 2}
    return running().model_copy(
        update={"replicas": replicas, "desired_replicas": desired, "envoy": envoy, **more}
    )


def order(seed: int, count: int, kinds: tuple[str, ...] = tuple(KINDS)) -> list[tuple[str, str]]:
    schedule = Schedule(kinds, seed)
    faults = [schedule.next(state()) for _ in range(count)]
    return [(fault.kind, fault.target) for fault in faults]


def test_the_same_seed_gives_the_same_order() -> None:
    assert order(7, 60) == order(7, 60)
    assert order(7, 60) != order(8, 60)


def test_every_kind_meets_every_program_before_any_repeats() -> None:
    of_process = [name for name, kind in KINDS.items() if kind.of_process]
    of_graph = [name for name, kind in KINDS.items() if not kind.of_process]
    every = len(of_process) * len(PROGRAMS) + len(of_graph)
    for part in (order(3, 2 * every)[:every], order(3, 2 * every)[every:]):
        met = Counter((kind, target.partition(".")[0]) for kind, target in part)
        assert set(met.values()) == {1}
        assert len(met) == every


def test_only_the_chosen_kinds_are_injected() -> None:
    assert {kind for kind, _ in order(1, 40, ("kill", "scale"))} == {"kill", "scale"}


def test_discovery_is_removed_only_where_it_is_a_folder() -> None:
    etcd = EtcdDiscoveryState(endpoint="http://127.0.0.1:2379", namespace="n")
    schedule = Schedule(("remove-discovery", "suspend-all"), 1)
    kinds = {schedule.next(state(discovery=etcd)).kind for _ in range(6)}
    assert kinds == {"suspend-all"}


@pytest.mark.parametrize(
    ("program", "envoy", "survivor"),
    [
        ("frontend", True, True),
        ("frontend", False, False),  # without Envoy, the first frontend is the endpoint
        ("prefill", True, False),  # there is only one
        ("decode", True, True),
        ("event-broker", True, True),  # requests do not pass through it
        ("endpoint", True, True),
    ],
)
def test_survivors(program: str, envoy: bool, survivor: bool) -> None:
    schedule = Schedule(("kill",), 5)
    faults = [schedule.next(state(envoy=envoy)) for _ in PROGRAMS]
    (fault,) = [f for f in faults if f.target.startswith(program)]
    assert fault.has_survivor is survivor
    assert len(fault.pids) == 1


def test_a_fault_of_the_graph_names_no_process() -> None:
    fault = Schedule(("suspend-all",), 1).next(state())
    assert (fault.target, fault.pids, fault.role) == (GRAPH, (), None)


def test_a_graph_is_settled_when_exactly_the_desired_replicas_are_ready() -> None:
    settled = state()
    assert is_settled(settled)
    assert not is_settled(settled.model_copy(update={"replicas": settled.replicas[1:]}))
    more = (*settled.replicas, replica("decode", 2))
    assert not is_settled(settled.model_copy(update={"replicas": more}))
    for other in set(ReplicaState) - {ReplicaState.READY}:
        changed = (replica("decode", 0, other), *settled.replicas[1:])
        assert not is_settled(settled.model_copy(update={"replicas": changed}))
