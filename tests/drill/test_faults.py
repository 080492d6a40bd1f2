"""The order of the faults, and on which processes they may be injected."""

from __future__ import annotations

import json
from collections import Counter
from typing import get_args

import pytest
from msgspec.structs import replace as with_fields

from penstock.drill import cluster
from penstock.drill.faults import GRAPH, Choice, Fault, Schedule, is_settled
from penstock.drill.inject import KINDS, choose
from penstock.errors import UsageError
from penstock.graph.choices import AnyFaultKind, FaultKind
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import EtcdDiscoveryState, LocalState, ReplicaStatus
from penstock.manifests.deployment import Role
from tests.local.builders import running
from tests.support.local_graphs import ROOT

PROGRAMS = {
    "frontend": (Role.FRONTEND, 2),
    "prefill": (Role.PREFILL, 1),
    "decode": (Role.DECODE, 2),
    "event-broker": (Role.OTHER, 1),
    "endpoint": (Role.OTHER, 2),
}


def replica(program: str, index: int, state: ReplicaState = ReplicaState.READY) -> ReplicaStatus:
    role, _ = PROGRAMS[program]
    sample = running().replicas[0]
    name = f"{program}.{index}"
    pid = 1000 + 10 * list(PROGRAMS).index(program) + index
    return with_fields(sample, name=name, program=program, role=role, state=state, pid=pid)


def state(envoy: bool = True, **more: object) -> LocalState:
    replicas = tuple(
        replica(program, index)
        for program, (_, count) in PROGRAMS.items()
        for index in range(count)
    )
    desired = {"frontend": 2, "prefill": 1, "decode": 2}
    return with_fields(running(), replicas=replicas, desired_replicas=desired, envoy=envoy, **more)


EVERY = tuple(Choice(kind=kind) for kind in KINDS.values())


def next_fault(schedule: Schedule, **more: object) -> Fault:
    fault = schedule.next(state(**more))  # type: ignore[arg-type]
    assert fault is not None
    return fault


def order(seed: int, count: int, choices: tuple[Choice, ...] = EVERY) -> list[tuple[str, str]]:
    schedule = Schedule(choices, seed)
    faults = [next_fault(schedule) for _ in range(count)]
    return [(fault.kind, fault.target) for fault in faults]


def test_the_graph_and_the_schema_of_the_chart_name_the_same_kinds() -> None:
    assert set(get_args(FaultKind)) == set(KINDS)
    kinds = {*KINDS, *cluster.KINDS}
    assert set(get_args(AnyFaultKind)) == kinds
    schema = json.loads((ROOT / "helm/penstock/values.schema.json").read_text("utf-8"))
    for field in ("permitted_failures", "recovery_s"):
        named = schema["$defs"]["Drill"]["properties"][field]["propertyNames"]
        assert set(named["enum"]) == kinds


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
    assert {kind for kind, _ in order(1, 40, tuple(choose("kill,scale")))} == {"kill", "scale"}


def test_a_kind_can_be_restricted_to_a_program() -> None:
    met = {
        (kind, target[:6])
        for kind, target in order(1, 20, tuple(choose("kill:decode, term:prefill")))
    }
    assert met == {("kill", "decode"), ("term", "prefil")}


def test_there_is_no_fault_for_a_program_that_does_not_run() -> None:
    assert Schedule(choose("kill:etcd"), 1).next(state()) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kil", "there is no fault `kil`. Fix: Did you mean `kill`?"),
        ("earthquake", "Fix: Use some of kill, term"),
        ("scale:decode", "scale affects the whole graph"),
    ],
)
def test_an_unknown_choice_is_an_error(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose(text)


def test_discovery_is_removed_only_where_it_is_a_folder() -> None:
    etcd = EtcdDiscoveryState(endpoint="http://127.0.0.1:2379", namespace="n")
    schedule = Schedule(choose("remove-discovery,suspend-all"), 1)
    kinds = {next_fault(schedule, discovery=etcd).kind for _ in range(6)}
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
    schedule = Schedule(choose("kill"), 5)
    faults = [next_fault(schedule, envoy=envoy) for _ in PROGRAMS]
    (fault,) = [f for f in faults if f.target.startswith(program)]
    assert fault.has_survivor is survivor
    assert len(fault.pids) == 1


def test_a_fault_of_the_graph_names_no_process() -> None:
    fault = next_fault(Schedule(choose("suspend-all"), 1))
    assert (fault.target, fault.pids, fault.role) == (GRAPH, (), None)
    assert fault.has_survivor


def test_nothing_survives_without_the_process_that_runs_the_graph() -> None:
    fault = next_fault(Schedule(choose("kill-supervisor"), 1))
    assert (fault.has_survivor, fault.is_outage) == (False, True)


def test_a_graph_is_settled_when_exactly_the_desired_replicas_are_ready() -> None:
    settled = state()
    assert is_settled(settled)
    assert not is_settled(with_fields(settled, replicas=settled.replicas[1:]))
    more = (*settled.replicas, replica("decode", 2))
    assert not is_settled(with_fields(settled, replicas=more))
    for other in set(ReplicaState) - {ReplicaState.READY}:
        changed = (replica("decode", 0, other), *settled.replicas[1:])
        assert not is_settled(with_fields(settled, replicas=changed))
