"""Which replicas to start and which to drain: pure, from what is wanted and what is seen.

The supervisor calls it a few times a second and acts on the answer. Its tests are histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    CRASHED = "crashed"  # ended by itself; waits until retry_at


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One program as the graph wants it.

    ``surge``: new before old; else old gives way first, which a program needs whose replicas own a
    fixed port. ``group``: programs that change over together, as the operator's generations do:
    the old of one leave when the new of all are ready.
    """

    program: str
    replicas: int
    key: str
    surge: bool = True
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One replica as it is. ``retry_at`` is a time on the caller's clock, for CRASHED only."""

    program: str
    index: int
    key: str
    state: State
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

BACKOFF_FIRST_S = 1.0
BACKOFF_MOST_S = 30.0
STABLE_S = 60.0


def backoff_s(crashes: int) -> float:
    """Seconds to wait before the next start, after the ``crashes``-th crash in a row."""
    return float(min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** (crashes - 1)))


def decide(wanted: Sequence[Wanted], seen: Iterable[Seen], now: float) -> list[Action]:
    """The actions of this moment, in a stable order; none when all is as wanted."""
    by_program: dict[str, list[Seen]] = {w.program: [] for w in wanted}
    for replica in seen:
        by_program.setdefault(replica.program, []).append(replica)
    groups = _ready_groups(wanted, by_program)
    actions: list[Action] = []
    for want in wanted:
        actions += _one_program(
            want, by_program[want.program], now, (want.group or want.program) in groups
        )
    gone = [_leave(r) for name, rs in by_program.items() for r in rs if _unwanted(name, r, wanted)]
    return actions + gone


def _ready_groups(wanted: Sequence[Wanted], by_program: dict[str, list[Seen]]) -> set[str]:
    """Groups all of whose wanted replicas are ready."""
    groups = {w.group or w.program for w in wanted}
    for want in wanted:
        ready = sum(r.key == want.key and r.state is State.READY for r in by_program[want.program])
        if ready < want.replicas:
            groups.discard(want.group or want.program)
    return groups


def _unwanted(name: str, replica: Seen, wanted: Sequence[Wanted]) -> bool:
    return all(w.program != name for w in wanted) and replica.state is not State.DRAINING


def _leave(replica: Seen) -> Action:
    kind = Forget if replica.state is State.CRASHED else Drain
    return kind(program=replica.program, index=replica.index, key=replica.key)


def _one_program(want: Wanted, replicas: list[Seen], now: float, settled: bool) -> list[Action]:
    """``settled``: all that is wanted of this program's group is ready, so the old may leave."""
    here = _alive(replicas, lambda r: r.key == want.key)
    old = _alive(replicas, lambda r: r.key != want.key)
    keep, surplus = here[: want.replicas], here[want.replicas :]
    crashed = [r for r in old if r.state is State.CRASHED]
    actions: list[Action] = [_leave(r) for r in surplus + crashed]
    actions += [
        Start(program=want.program, index=r.index)
        for r in keep
        if r.state is State.CRASHED and now >= r.retry_at
    ]
    running = [r for r in old if r.state is not State.CRASHED]
    if want.surge:
        return actions + _with_surge(want, replicas, len(keep), running if settled else [])
    return actions + _in_place(want, replicas, keep, running)


def _alive(replicas: list[Seen], which: Callable[[Seen], bool]) -> list[Seen]:
    chosen = [r for r in replicas if which(r) and r.state is not State.DRAINING]
    return sorted(chosen, key=lambda r: r.index)


def _with_surge(want: Wanted, replicas: list[Seen], have: int, old: list[Seen]) -> list[Action]:
    """New ones beside the old, which leave when the new are ready."""
    free = _free_indices({r.index for r in replicas})
    starts = [Start(program=want.program, index=next(free)) for _ in range(want.replicas - have)]
    return [*starts, *(_leave(r) for r in old)]


def _in_place(
    want: Wanted, replicas: list[Seen], keep: list[Seen], old: list[Seen]
) -> list[Action]:
    """One old replica at a time gives its index to a new one, once the others are ready."""
    taken = {r.index for r in replicas}
    starts: list[Action] = [
        Start(program=want.program, index=index)
        for index in range(want.replicas)
        if index not in taken
    ]
    leaving = any(r.state is State.DRAINING for r in replicas)
    if starts or leaving or any(r.state is not State.READY for r in keep):
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
