"""Compute which replicas to start and which to drain from the desired and the observed state. Pure.

The supervisor calls `reconcile` a few times per second and applies the actions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    UNHEALTHY = "unhealthy"  # was ready; its last check failed. Only in the state file.
    DRAINING = "draining"
    CRASHED = "crashed"  # exited by itself; restarts at retry_at


@dataclass(frozen=True, kw_only=True)
class DesiredProgram:
    """One program as the graph declares it."""

    program: str
    replicas: int
    key: str
    """Identifies the configuration, see `Program.key`."""
    surge: bool = True
    """Start new replicas before old ones stop. False where a replica owns a fixed port."""
    group: str = ""
    """Programs that roll over together, as the operator's generations do: old replicas stop when
    the new ones of the whole group are ready."""
    after: tuple[str, ...] = ()
    """Programs of the new generation that must be ready before this one starts, as long as an old
    generation serves."""


@dataclass(frozen=True, kw_only=True)
class ObservedReplica:
    """One replica as it runs."""

    program: str
    index: int
    key: str
    state: ReplicaState
    retry_at: float = 0.0
    """Time of the next start on the caller's clock; for CRASHED only."""


class ActionKind(Enum):
    START = auto()
    DRAIN = auto()  # and stop
    FORGET = auto()  # a crashed replica that is no longer desired


@dataclass(frozen=True, kw_only=True)
class Action:
    kind: ActionKind
    program: str
    index: int
    key: str
    """Distinguishes an old replica from a new one with the same index."""


_KEEP_ORDER = {ReplicaState.READY: 0, ReplicaState.STARTING: 1, ReplicaState.CRASHED: 2}

BACKOFF_FIRST_S = 1.0
BACKOFF_MOST_S = 30.0
# Services restart sooner: without etcd, workers exit when their leases expire; without the event
# broker, routers receive no events.
BACKOFF_SERVICE_S = 2.0
STABLE_S = 60.0
# Crashes in a row after which a process that was ready before each of them starts again at once.
AT_ONCE = 3


def backoff_s(crashes: int, *, has_served: bool = False, most_s: float = BACKOFF_MOST_S) -> float:
    """Seconds to wait before the next start, after the ``crashes``-th crash in a row.

    ``has_served``: it was ready before this crash. Its configuration works, and requests wait.
    """
    waits = crashes - AT_ONCE if has_served else crashes
    if waits <= 0:
        return 0.0
    return float(min(most_s, BACKOFF_FIRST_S * 2 ** min(waits - 1, 10)))


def reconcile(
    desired: Sequence[DesiredProgram],
    observed: Iterable[ObservedReplica],
    now: float,
    *,
    groups_serve: bool = True,
) -> list[Action]:
    """The actions to take now, in a stable order; empty when the states agree.

    ``groups_serve``: frontends route requests to the new replicas of the groups. Until then, the
    old ones do not stop.
    """
    by_program: dict[str, list[ObservedReplica]] = {d.program: [] for d in desired}
    for replica in observed:
        by_program.setdefault(replica.program, []).append(replica)
    ready = {d.program for d in desired if _is_ready(d, by_program[d.program])}
    ready_groups = {d.group or d.program for d in desired}
    ready_groups -= {d.group or d.program for d in desired if d.program not in ready}
    actions: list[Action] = []
    for program in desired:
        replicas = by_program[program.program]
        group_ready = (program.group or program.program) in ready_groups
        group_ready = group_ready and (groups_serve or not program.group)
        has_old = any(r.key != program.key for r in replicas)
        if ready.issuperset(program.after) or not has_old:
            actions += _reconcile_program(program, replicas, now, group_ready)
    removed = [r for name, rs in by_program.items() for r in rs if _is_removed(name, r, desired)]
    if groups_serve and all(d.program in ready for d in desired):
        return actions + [_remove(r) for r in removed]
    return actions + [_remove(r) for r in removed if r.state is ReplicaState.CRASHED]


def _is_ready(program: DesiredProgram, replicas: list[ObservedReplica]) -> bool:
    """Whether all desired replicas of a program are ready."""
    count = sum(r.key == program.key and r.state is ReplicaState.READY for r in replicas)
    return count >= program.replicas


def _is_removed(name: str, replica: ObservedReplica, desired: Sequence[DesiredProgram]) -> bool:
    return all(d.program != name for d in desired) and not _drains(replica)


def _remove(replica: ObservedReplica) -> Action:
    kind = ActionKind.FORGET if replica.state is ReplicaState.CRASHED else ActionKind.DRAIN
    return Action(kind=kind, program=replica.program, index=replica.index, key=replica.key)


def _start(program: DesiredProgram, index: int) -> Action:
    return Action(kind=ActionKind.START, program=program.program, index=index, key=program.key)


def _reconcile_program(
    program: DesiredProgram, replicas: list[ObservedReplica], now: float, group_ready: bool
) -> list[Action]:
    """``group_ready``: the whole group of this program is ready, so its old replicas may stop."""
    alive = [r for r in sorted(replicas, key=lambda r: r.index) if not _drains(r)]
    current = [r for r in alive if r.key == program.key]
    old = [r for r in alive if r.key != program.key]
    # Replicas that serve are kept; crashed and starting ones are removed first.
    ordered = sorted(current, key=lambda r: (_KEEP_ORDER[r.state], r.index))
    keep, surplus = ordered[: program.replicas], ordered[program.replicas :]
    crashed = [r for r in old if r.state is ReplicaState.CRASHED]
    actions: list[Action] = [_remove(r) for r in surplus + crashed]
    actions += [
        _start(program, r.index)
        for r in keep
        if r.state is ReplicaState.CRASHED and now >= r.retry_at
    ]
    running = [r for r in old if r.state is not ReplicaState.CRASHED]
    if program.surge:
        stopping = running if group_ready else []
        return actions + _with_surge(program, replicas, len(keep), stopping)
    return actions + _in_place(program, replicas, keep, running)


def _drains(replica: ObservedReplica) -> bool:
    return replica.state is ReplicaState.DRAINING


def _with_surge(
    program: DesiredProgram, replicas: list[ObservedReplica], have: int, old: list[ObservedReplica]
) -> list[Action]:
    """Start new replicas in addition to the old ones, and stop ``old``."""
    taken = {r.index for r in replicas}
    free = (index for index in itertools.count() if index not in taken)
    starts = [_start(program, next(free)) for _ in range(program.replicas - have)]
    return [*starts, *(_remove(r) for r in old)]


def _in_place(
    program: DesiredProgram,
    replicas: list[ObservedReplica],
    keep: list[ObservedReplica],
    old: list[ObservedReplica],
) -> list[Action]:
    """Replace one old replica at a time, each once the others are ready."""
    taken = {r.index for r in replicas}
    starts = [_start(program, index) for index in range(program.replicas) if index not in taken]
    if (
        starts
        or any(map(_drains, replicas))
        or any(r.state is not ReplicaState.READY for r in keep)
    ):
        return starts
    surplus = [r for r in old if r.index >= program.replicas]
    return [_remove(r) for r in surplus or old[:1]]
