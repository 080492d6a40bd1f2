"""Which replicas to start and which to drain: pure, from what is wanted and what is seen.

The supervisor calls it a few times a second and acts on the answer. Its tests are histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class ReplicaState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    CRASHED = "crashed"  # ended by itself; waits until retry_at


@dataclass(frozen=True, kw_only=True)
class DesiredProgram:
    """One program as the graph wants it.

    ``surge``: new before old; else old gives way first, which a program needs whose replicas own a
    fixed port. ``group``: programs that change over together, as the operator's generations do:
    the old of one leave when the new of all are ready. ``after``: programs of the new generation
    that must be ready first while an old one serves.
    """

    program: str
    replicas: int
    key: str
    surge: bool = True
    group: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObservedReplica:
    """One replica as it is. ``retry_at`` is a time on the caller's clock, for CRASHED only."""

    program: str
    index: int
    key: str
    state: ReplicaState
    retry_at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Start:
    program: str
    index: int


@dataclass(frozen=True, kw_only=True)
class Drain:
    """``key`` tells an old replica from a new one of the same index while they change over."""

    program: str
    index: int
    key: str


@dataclass(frozen=True, kw_only=True)
class Forget:
    """A crashed replica that nobody wants any more."""

    program: str
    index: int
    key: str


Action = Start | Drain | Forget

_WORTH = {ReplicaState.READY: 0, ReplicaState.STARTING: 1, ReplicaState.CRASHED: 2}

BACKOFF_FIRST_S = 1.0
BACKOFF_MOST_S = 30.0
STABLE_S = 60.0


def backoff_s(crashes: int) -> float:
    """Seconds to wait before the next start, after the ``crashes``-th crash in a row."""
    return float(min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(crashes - 1, 10)))


def reconcile(
    wanted: Sequence[DesiredProgram], seen: Iterable[ObservedReplica], now: float
) -> list[Action]:
    """The actions of this moment, in a stable order; none when all is as wanted."""
    by_program: dict[str, list[ObservedReplica]] = {w.program: [] for w in wanted}
    for replica in seen:
        by_program.setdefault(replica.program, []).append(replica)
    ready = {w.program for w in wanted if _is_ready(w, by_program[w.program])}
    groups = {w.group or w.program for w in wanted}
    groups -= {w.group or w.program for w in wanted if w.program not in ready}
    actions: list[Action] = []
    for want in wanted:
        replicas = by_program[want.program]
        settled = (want.group or want.program) in groups
        held = not ready.issuperset(want.after) and any(r.key != want.key for r in replicas)
        if not held:
            actions += _one_program(want, replicas, now, settled)
    gone = [r for name, rs in by_program.items() for r in rs if _unwanted(name, r, wanted)]
    if all(w.program in ready for w in wanted):
        return actions + [_leave(r) for r in gone]
    return actions + [_leave(r) for r in gone if r.state is ReplicaState.CRASHED]


def _is_ready(want: DesiredProgram, replicas: list[ObservedReplica]) -> bool:
    """Whether all that is wanted of a program is there and ready."""
    count = sum(r.key == want.key and r.state is ReplicaState.READY for r in replicas)
    return count >= want.replicas


def _unwanted(name: str, replica: ObservedReplica, wanted: Sequence[DesiredProgram]) -> bool:
    return all(w.program != name for w in wanted) and replica.state is not ReplicaState.DRAINING


def _leave(replica: ObservedReplica) -> Action:
    kind = Forget if replica.state is ReplicaState.CRASHED else Drain
    return kind(program=replica.program, index=replica.index, key=replica.key)


def _one_program(
    want: DesiredProgram, replicas: list[ObservedReplica], now: float, settled: bool
) -> list[Action]:
    """``settled``: all that is wanted of this program's group is ready, so the old may leave."""
    here = _alive(replicas, lambda r: r.key == want.key)
    old = _alive(replicas, lambda r: r.key != want.key)
    # Those that serve stay: one that crashed or is only starting is the first to go.
    worth = sorted(here, key=lambda r: (_WORTH[r.state], r.index))
    keep, surplus = worth[: want.replicas], worth[want.replicas :]
    crashed = [r for r in old if r.state is ReplicaState.CRASHED]
    actions: list[Action] = [_leave(r) for r in surplus + crashed]
    actions += [
        Start(program=want.program, index=r.index)
        for r in keep
        if r.state is ReplicaState.CRASHED and now >= r.retry_at
    ]
    running = [r for r in old if r.state is not ReplicaState.CRASHED]
    if want.surge:
        return actions + _with_surge(want, replicas, len(keep), running if settled else [])
    return actions + _in_place(want, replicas, keep, running)


def _alive(
    replicas: list[ObservedReplica], which: Callable[[ObservedReplica], bool]
) -> list[ObservedReplica]:
    chosen = [r for r in replicas if which(r) and r.state is not ReplicaState.DRAINING]
    return sorted(chosen, key=lambda r: r.index)


def _with_surge(
    want: DesiredProgram, replicas: list[ObservedReplica], have: int, old: list[ObservedReplica]
) -> list[Action]:
    """New ones beside the old, which leave when the new are ready."""
    free = _free_indices({r.index for r in replicas})
    starts = [Start(program=want.program, index=next(free)) for _ in range(want.replicas - have)]
    return [*starts, *(_leave(r) for r in old)]


def _in_place(
    want: DesiredProgram,
    replicas: list[ObservedReplica],
    keep: list[ObservedReplica],
    old: list[ObservedReplica],
) -> list[Action]:
    """One old replica at a time gives its index to a new one, once the others are ready."""
    taken = {r.index for r in replicas}
    starts: list[Action] = [
        Start(program=want.program, index=index)
        for index in range(want.replicas)
        if index not in taken
    ]
    leaving = any(r.state is ReplicaState.DRAINING for r in replicas)
    if starts or leaving or any(r.state is not ReplicaState.READY for r in keep):
        return starts
    surplus = [r for r in old if r.index >= want.replicas]
    return [_leave(r) for r in surplus or old[:1]]


def _free_indices(taken: set[int]) -> Iterator[int]:
    index = 0
    while True:
        if index not in taken:
            taken.add(index)
            yield index
        index += 1
