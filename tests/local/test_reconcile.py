"""`reconcile` in tables: the desired state, the observed state, the actions."""

from __future__ import annotations

import pytest

from penstock.local.reconcile import (
    DesiredProgram,
    Drain,
    Forget,
    ObservedReplica,
    ReplicaState,
    Start,
    backoff_s,
    reconcile,
)


def desired_program(
    program: str = "decode", replicas: int = 2, key: str = "a", **more: object
) -> DesiredProgram:
    return DesiredProgram(program=program, replicas=replicas, key=key, **more)  # type: ignore[arg-type]


def observed(
    index: int,
    state: ReplicaState = ReplicaState.READY,
    key: str = "a",
    program: str = "decode",
    at: float = 0,
) -> ObservedReplica:
    return ObservedReplica(program=program, index=index, key=key, state=state, retry_at=at)


def start(index: int, program: str = "decode") -> Start:
    return Start(program=program, index=index)


def drain(index: int, key: str = "a", program: str = "decode") -> Drain:
    return Drain(program=program, index=index, key=key)


def test_an_empty_machine_gets_every_replica() -> None:
    assert reconcile([desired_program()], [], 0) == [start(0), start(1)]


def test_equal_states_need_no_action() -> None:
    assert (
        reconcile([desired_program()], [observed(0), observed(1, ReplicaState.STARTING)], 0) == []
    )


def test_scaling_up_starts_exactly_the_missing_ones() -> None:
    assert reconcile([desired_program(replicas=4)], [observed(0), observed(1)], 0) == [
        start(2),
        start(3),
    ]


def test_scaling_down_drains_the_highest_indices() -> None:
    assert reconcile([desired_program(replicas=1)], [observed(2), observed(0), observed(1)], 0) == [
        drain(1),
        drain(2),
    ]


def test_scaling_down_keeps_the_replicas_that_serve() -> None:
    crashed = [observed(0, ReplicaState.CRASHED, at=9), observed(1)]
    assert reconcile([desired_program(replicas=1)], crashed, 0) == [
        Forget(program="decode", index=0, key="a")
    ]
    starting = [observed(0, ReplicaState.STARTING), observed(1)]
    assert reconcile([desired_program(replicas=1)], starting, 0) == [drain(0)]


def test_scaling_to_zero_drains_all() -> None:
    assert reconcile([desired_program(replicas=0)], [observed(0)], 0) == [drain(0)]


def test_a_draining_replica_does_not_count_and_keeps_its_index() -> None:
    assert reconcile(
        [desired_program(replicas=2)], [observed(0), observed(1, ReplicaState.DRAINING)], 0
    ) == [start(2)]


def test_a_removed_program_is_drained_when_the_remaining_programs_are_ready() -> None:
    old = observed(0, program="old")
    assert reconcile([desired_program(replicas=0)], [old], 0) == [drain(0, program="old")]
    assert reconcile([desired_program(replicas=1)], [old], 0) == [start(0)]
    assert reconcile([desired_program(replicas=1)], [old, observed(0)], 0) == [
        drain(0, program="old")
    ]


def test_a_crashed_replica_restarts_with_its_index_at_its_retry_time() -> None:
    crashed = [observed(0), observed(1, ReplicaState.CRASHED, at=5)]
    assert reconcile([desired_program()], crashed, 4.9) == []
    assert reconcile([desired_program()], crashed, 5.0) == [start(1)]


def test_a_crashed_replica_that_is_not_desired_is_forgotten() -> None:
    crashed = observed(1, ReplicaState.CRASHED, at=5)
    assert reconcile([desired_program(replicas=1)], [observed(0), crashed], 0) == [
        Forget(program="decode", index=1, key="a")
    ]


def test_a_new_configuration_starts_beside_the_old_one_which_drains_when_it_is_ready() -> None:
    desired = [desired_program(key="b")]
    old = [observed(0), observed(1)]
    assert reconcile(desired, old, 0) == [start(2), start(3)]
    starting = [*old, observed(2, ReplicaState.READY, "b"), observed(3, ReplicaState.STARTING, "b")]
    assert reconcile(desired, starting, 0) == []
    ready = [*old, observed(2, ReplicaState.READY, "b"), observed(3, ReplicaState.READY, "b")]
    assert reconcile(desired, ready, 0) == [drain(0), drain(1)]


def test_the_old_pools_of_a_group_drain_only_when_the_new_generation_is_ready() -> None:
    desired = [
        desired_program("prefill", 1, "b", group="workers"),
        desired_program("decode", 1, "b", group="workers"),
    ]
    old = [observed(0, program="prefill"), observed(0, program="decode")]
    half = [
        *old,
        observed(1, ReplicaState.READY, "b", "prefill"),
        observed(1, ReplicaState.STARTING, "b", "decode"),
    ]
    assert reconcile(desired, half, 0) == []
    ready = [
        *old,
        observed(1, ReplicaState.READY, "b", "prefill"),
        observed(1, ReplicaState.READY, "b", "decode"),
    ]
    assert reconcile(desired, ready, 0, groups_serve=False) == []
    assert reconcile(desired, ready, 0) == [drain(0, program="prefill"), drain(0, program="decode")]


def test_new_decode_workers_wait_for_new_prefill_workers_while_the_old_serve() -> None:
    desired = [
        desired_program("prefill", 1, "b", group="workers"),
        desired_program("decode", 1, "b", group="workers", after=("prefill",)),
    ]
    old = [observed(0, program="prefill"), observed(0, program="decode")]
    assert reconcile(desired, old, 0) == [start(1, "prefill")]
    ready = [*old, observed(1, ReplicaState.READY, "b", "prefill")]
    assert reconcile(desired, ready, 0) == [start(1, "decode")]
    assert reconcile(desired, [], 0) == [start(0, "prefill"), start(0, "decode")]


def test_an_edit_reverted_midway_drains_the_new_replicas_and_keeps_the_old() -> None:
    half = [observed(0), observed(1), observed(2, ReplicaState.STARTING, "b")]
    assert reconcile([desired_program(key="a")], half, 0) == [drain(2, "b")]


def test_a_crashed_replica_of_the_old_configuration_is_forgotten() -> None:
    desired = [desired_program(replicas=1, key="b")]
    crashed = [observed(0, ReplicaState.CRASHED, at=99), observed(1, ReplicaState.STARTING, "b")]
    assert reconcile(desired, crashed, 0) == [Forget(program="decode", index=0, key="a")]


def test_replicas_with_a_fixed_port_are_replaced_one_at_a_time() -> None:
    desired = [desired_program("frontend", 2, "b", surge=False)]
    old = [observed(0, program="frontend"), observed(1, program="frontend")]
    assert reconcile(desired, old, 0) == [drain(0, program="frontend")]
    draining = [observed(0, ReplicaState.DRAINING, "a", "frontend"), old[1]]
    assert reconcile(desired, draining, 0) == []
    assert reconcile(desired, [old[1]], 0) == [start(0, "frontend")]
    starting = [observed(0, ReplicaState.STARTING, "b", "frontend"), old[1]]
    assert reconcile(desired, starting, 0) == []
    ready = [observed(0, ReplicaState.READY, "b", "frontend"), old[1]]
    assert reconcile(desired, ready, 0) == [drain(1, program="frontend")]


@pytest.mark.parametrize(("crashes", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 30), (5000, 30)])
def test_backoff_doubles_up_to_half_a_minute(crashes: int, seconds: float) -> None:
    assert backoff_s(crashes) == seconds
    assert backoff_s(crashes, most_s=2) == min(seconds, 2)


@pytest.mark.parametrize(("crashes", "seconds"), [(1, 0), (3, 0), (4, 1), (5, 2), (5000, 30)])
def test_a_process_that_served_starts_again_at_once_unless_it_repeats(
    crashes: int, seconds: float
) -> None:
    assert backoff_s(crashes, has_served=True) == seconds


def test_repeated_reconciliation_reaches_the_desired_state_from_any_mixture() -> None:
    replicas = [
        observed(0, ReplicaState.CRASHED),
        observed(3),
        observed(1, key="z"),
        observed(7, ReplicaState.STARTING, "z"),
    ]
    desired = [desired_program(replicas=3)]
    for moment in range(10):
        actions = reconcile(desired, replicas, float(moment))
        if not actions:
            break
        for action in actions:
            if isinstance(action, Start):
                replicas = [r for r in replicas if r.index != action.index or r.key != "a"]
                replicas.append(observed(action.index))
            else:
                replicas = [r for r in replicas if (r.index, r.key) != (action.index, action.key)]
    assert len(replicas) == 3
    assert all(r.key == "a" and r.state is ReplicaState.READY for r in replicas)
