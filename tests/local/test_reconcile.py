"""Histories as data: what is wanted, what is seen, what is done about it."""

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


def want(
    program: str = "decode", replicas: int = 2, key: str = "a", **more: object
) -> DesiredProgram:
    return DesiredProgram(program=program, replicas=replicas, key=key, **more)  # type: ignore[arg-type]


def seen(
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
    assert reconcile([want()], [], 0) == [start(0), start(1)]


def test_nothing_is_done_when_all_is_as_wanted() -> None:
    assert reconcile([want()], [seen(0), seen(1, ReplicaState.STARTING)], 0) == []


def test_scaling_up_starts_exactly_the_missing_ones() -> None:
    assert reconcile([want(replicas=4)], [seen(0), seen(1)], 0) == [start(2), start(3)]


def test_scaling_down_drains_the_highest_indices() -> None:
    assert reconcile([want(replicas=1)], [seen(2), seen(0), seen(1)], 0) == [drain(1), drain(2)]


def test_scaling_down_keeps_those_that_serve() -> None:
    crashed = [seen(0, ReplicaState.CRASHED, at=9), seen(1)]
    assert reconcile([want(replicas=1)], crashed, 0) == [Forget(program="decode", index=0, key="a")]
    starting = [seen(0, ReplicaState.STARTING), seen(1)]
    assert reconcile([want(replicas=1)], starting, 0) == [drain(0)]


def test_scaling_to_zero_drains_all() -> None:
    assert reconcile([want(replicas=0)], [seen(0)], 0) == [drain(0)]


def test_a_draining_replica_does_not_count_and_keeps_its_index() -> None:
    assert reconcile([want(replicas=2)], [seen(0), seen(1, ReplicaState.DRAINING)], 0) == [start(2)]


def test_a_program_that_left_the_graph_is_drained_when_what_came_is_ready() -> None:
    old = seen(0, program="old")
    assert reconcile([want(replicas=0)], [old], 0) == [drain(0, program="old")]
    assert reconcile([want(replicas=1)], [old], 0) == [start(0)]
    assert reconcile([want(replicas=1)], [old, seen(0)], 0) == [drain(0, program="old")]


def test_a_crashed_replica_waits_for_its_time_and_then_starts_under_its_own_index() -> None:
    crashed = [seen(0), seen(1, ReplicaState.CRASHED, at=5)]
    assert reconcile([want()], crashed, 4.9) == []
    assert reconcile([want()], crashed, 5.0) == [start(1)]


def test_a_crashed_replica_nobody_wants_is_forgotten() -> None:
    crashed = seen(1, ReplicaState.CRASHED, at=5)
    assert reconcile([want(replicas=1)], [seen(0), crashed], 0) == [
        Forget(program="decode", index=1, key="a")
    ]


def test_a_new_configuration_starts_beside_the_old_which_leaves_when_the_new_is_ready() -> None:
    wanted = [want(key="b")]
    old = [seen(0), seen(1)]
    assert reconcile(wanted, old, 0) == [start(2), start(3)]
    starting = [*old, seen(2, ReplicaState.READY, "b"), seen(3, ReplicaState.STARTING, "b")]
    assert reconcile(wanted, starting, 0) == []
    ready = [*old, seen(2, ReplicaState.READY, "b"), seen(3, ReplicaState.READY, "b")]
    assert reconcile(wanted, ready, 0) == [drain(0), drain(1)]


def test_pools_of_one_group_change_over_only_when_the_whole_new_generation_is_ready() -> None:
    wanted = [
        want("prefill", 1, "b", group="workers"),
        want("decode", 1, "b", group="workers"),
    ]
    old = [seen(0, program="prefill"), seen(0, program="decode")]
    half = [
        *old,
        seen(1, ReplicaState.READY, "b", "prefill"),
        seen(1, ReplicaState.STARTING, "b", "decode"),
    ]
    assert reconcile(wanted, half, 0) == []
    whole = [
        *old,
        seen(1, ReplicaState.READY, "b", "prefill"),
        seen(1, ReplicaState.READY, "b", "decode"),
    ]
    assert reconcile(wanted, whole, 0) == [drain(0, program="prefill"), drain(0, program="decode")]


def test_decode_of_a_new_generation_waits_for_its_prefill_while_the_old_serves() -> None:
    wanted = [
        want("prefill", 1, "b", group="workers"),
        want("decode", 1, "b", group="workers", after=("prefill",)),
    ]
    old = [seen(0, program="prefill"), seen(0, program="decode")]
    assert reconcile(wanted, old, 0) == [start(1, "prefill")]
    ready = [*old, seen(1, ReplicaState.READY, "b", "prefill")]
    assert reconcile(wanted, ready, 0) == [start(1, "decode")]
    assert reconcile(wanted, [], 0) == [start(0, "prefill"), start(0, "decode")]


def test_an_edit_taken_back_midway_drains_the_new_and_keeps_the_old() -> None:
    half = [seen(0), seen(1), seen(2, ReplicaState.STARTING, "b")]
    assert reconcile([want(key="a")], half, 0) == [drain(2, "b")]


def test_a_crashed_replica_of_the_old_configuration_is_not_waited_for() -> None:
    wanted = [want(replicas=1, key="b")]
    crashed = [seen(0, ReplicaState.CRASHED, at=99), seen(1, ReplicaState.STARTING, "b")]
    assert reconcile(wanted, crashed, 0) == [Forget(program="decode", index=0, key="a")]


def test_a_fixed_port_gives_way_one_replica_at_a_time() -> None:
    wanted = [want("frontend", 2, "b", surge=False)]
    old = [seen(0, program="frontend"), seen(1, program="frontend")]
    assert reconcile(wanted, old, 0) == [drain(0, program="frontend")]
    leaving = [seen(0, ReplicaState.DRAINING, "a", "frontend"), old[1]]
    assert reconcile(wanted, leaving, 0) == []
    assert reconcile(wanted, [old[1]], 0) == [start(0, "frontend")]
    starting = [seen(0, ReplicaState.STARTING, "b", "frontend"), old[1]]
    assert reconcile(wanted, starting, 0) == []
    ready = [seen(0, ReplicaState.READY, "b", "frontend"), old[1]]
    assert reconcile(wanted, ready, 0) == [drain(1, program="frontend")]


@pytest.mark.parametrize(("crashes", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 30), (5000, 30)])
def test_backoff_doubles_up_to_half_a_minute(crashes: int, seconds: float) -> None:
    assert backoff_s(crashes) == seconds


def test_playing_decisions_forward_reaches_what_is_wanted_from_any_mixture() -> None:
    replicas = [
        seen(0, ReplicaState.CRASHED),
        seen(3),
        seen(1, key="z"),
        seen(7, ReplicaState.STARTING, "z"),
    ]
    wanted = [want(replicas=3)]
    for moment in range(10):
        actions = reconcile(wanted, replicas, float(moment))
        if not actions:
            break
        for action in actions:
            if isinstance(action, Start):
                replicas = [r for r in replicas if r.index != action.index or r.key != "a"]
                replicas.append(seen(action.index))
            else:
                replicas = [r for r in replicas if (r.index, r.key) != (action.index, action.key)]
    assert len(replicas) == 3
    assert all(r.key == "a" and r.state is ReplicaState.READY for r in replicas)
