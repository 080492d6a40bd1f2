"""What the faults cost the clients: from the history of requests and faults alone. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.drill.traffic import Ending, StreamResult
from penstock.manifests.deployment import Role


class Harm(StrEnum):
    """What went wrong with a request."""

    LOST = "lost"  # no response, or an error after all retries
    TRUNCATED = "truncated"
    DUPLICATED = "duplicated"
    WRONG = "wrong"  # other tokens than without faults
    STALLED = "stalled"  # complete, but nothing arrived for longer than the limit


UNSERVED = (Harm.LOST, Harm.TRUNCATED, Harm.STALLED)


@dataclass(frozen=True, kw_only=True)
class FaultRecord:
    """One injected fault. Times are in seconds on the clock of the history."""

    number: int
    kind: str
    target: str
    """The process, such as `decode.0`; `graph` for a fault of everything."""
    role: Role | None
    started_s: float
    ended_s: float
    """The injection is over."""
    recovered_s: float | None
    """Every process is ready again; None: not within the time limit."""
    has_survivor: bool
    """Whether another process could carry on the requests of the target."""
    is_outage: bool = False
    """Nothing could serve until the recovery."""
    stalls: bool = False
    """It suspended processes or their connections, so that streams waited."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One affected request."""

    request: StreamResult
    harm: Harm
    fault: FaultRecord | None
    """The last fault that began before the request ended; None: before any fault."""
    is_unavoidable: bool
    cause: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """The faults of one kind on the processes of one program."""

    kind: str
    target: str
    """The program, or `graph`."""
    faults: int
    requests: int
    """Requests that ran between one of these faults and its recovery."""
    affected: Mapping[Harm, int]
    unavoidable: int
    recovery_s: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of a drill."""

    requests: int
    losses: tuple[Loss, ...]
    rows: tuple[Row, ...]
    not_recovered: tuple[FaultRecord, ...]
    leftovers: tuple[str, ...]
    """Processes and files that were left when the graph had stopped."""
    permitted: Mapping[str, int] = field(default_factory=dict)
    """Kind → avoidable losses that each of its faults may cause."""

    @property
    def avoidable(self) -> tuple[Loss, ...]:
        """The losses that something could have prevented."""
        return tuple(loss for loss in self.losses if not loss.is_unavoidable)

    @property
    def above_limit(self) -> tuple[str, ...]:
        """The kinds of which a fault caused more avoidable losses than permitted; "" for losses
        before any fault."""
        counts = Counter(loss.fault.number if loss.fault else 0 for loss in self.avoidable)
        kinds = {loss.fault.number: loss.fault.kind for loss in self.avoidable if loss.fault}
        above = {
            kinds.get(number, "")
            for number, count in counts.items()
            if count > self.permitted.get(kinds.get(number, ""), 0)
        }
        return tuple(sorted(above))

    @property
    def passes(self) -> bool:
        return not (self.above_limit or self.not_recovered or self.leftovers)


def evaluate(
    history: Sequence[StreamResult],
    faults: Sequence[FaultRecord],
    *,
    stall_s: float,
    expected: Mapping[int, str] | None = None,
    leftovers: Sequence[str] = (),
    permitted: Mapping[str, int] | None = None,
) -> Evaluation:
    """``expected``: number of a request → its text without faults, for deterministic engines;
    ``permitted``: kind → avoidable losses that each of its faults may cause.
    """
    losses = []
    for request in history:
        harm = _harm(request, stall_s, expected or {})
        if harm is not None:
            losses.append(_loss(request, harm, _fault_of(request, faults)))
    groups: dict[tuple[str, str], list[FaultRecord]] = {}
    for fault in faults:
        program = fault.target.partition(".")[0]
        groups.setdefault((fault.kind, program), []).append(fault)
    return Evaluation(
        requests=len(history),
        losses=tuple(losses),
        rows=tuple(_row(*key, group, history, losses) for key, group in sorted(groups.items())),
        not_recovered=tuple(fault for fault in faults if fault.recovered_s is None),
        leftovers=tuple(leftovers),
        permitted=permitted or {},
    )


def _harm(request: StreamResult, stall_s: float, expected: Mapping[int, str]) -> Harm | None:
    if request.ending in (Ending.REJECTED, Ending.REFUSED):
        return Harm.LOST
    if request.ending is Ending.TRUNCATED:
        return Harm.TRUNCATED
    if request.ending is Ending.DUPLICATED:
        return Harm.DUPLICATED
    if request.error or expected.get(request.number, request.text) != request.text:
        return Harm.WRONG
    if request.longest_gap_s > stall_s:
        return Harm.STALLED
    return None


def _fault_of(request: StreamResult, faults: Sequence[FaultRecord]) -> FaultRecord | None:
    before = [fault for fault in faults if fault.started_s <= request.ended_s]
    return max(before, key=lambda fault: fault.started_s) if before else None


def _loss(request: StreamResult, harm: Harm, fault: FaultRecord | None) -> Loss:
    cause, is_unavoidable = _cause(request, harm, fault)
    return Loss(request=request, harm=harm, fault=fault, is_unavoidable=is_unavoidable, cause=cause)


def _cause(request: StreamResult, harm: Harm, fault: FaultRecord | None) -> tuple[str, bool]:
    """Why the request was affected, and whether nothing could have prevented it.

    A stream is lost with the frontend or Envoy that has its connection. A stalled stream continues
    once the hung process is detected. A retry or a migration could have avoided everything else.
    """
    if fault is None:
        return "no fault had begun", False
    has_recovered_s = fault.recovered_s if fault.recovered_s is not None else request.ended_s
    if fault.is_outage and request.started_s <= has_recovered_s and harm in UNSERVED:
        return "nothing could serve it", True
    was_open = request.started_s <= fault.ended_s
    holds_streams = fault.role is Role.FRONTEND or fault.target.startswith("endpoint")
    if holds_streams and was_open and harm in (Harm.TRUNCATED, Harm.LOST):
        if fault.has_survivor and harm is Harm.LOST and request.started_s > fault.started_s:
            return f"{fault.target} was not taken out of service in time", False
        if fault.has_survivor or request.started_s <= fault.started_s:
            return f"its connection was to {fault.target}", True
        return (
            "no other frontend could take the request. Fix: set `frontend.replicas: 2` and run "
            "`penstock env install envoy`.",
            False,
        )
    # Twice as long: TCP sends again after an exponential backoff.
    most_s = 2 * (max(has_recovered_s, fault.ended_s) - fault.started_s)
    if harm is Harm.STALLED and fault.stalls and was_open and request.longest_gap_s <= most_s:
        return f"it waited until {fault.target} was detected as hung, or continued", True
    if fault.role is None and "." not in fault.target:
        return "the fault did not end its connection, or a retry should have succeeded", False
    if fault.has_survivor:
        return (
            f"it did not depend on {fault.target}, or another replica could have served it",
            False,
        )
    program = fault.target.partition(".")[0]
    return f"{program} has one replica. Fix: set `{program}.replicas: 2`.", False


def _row(
    kind: str,
    target: str,
    faults: Sequence[FaultRecord],
    history: Sequence[StreamResult],
    losses: Sequence[Loss],
) -> Row:
    numbers = {fault.number for fault in faults}
    own = [loss for loss in losses if loss.fault is not None and loss.fault.number in numbers]
    return Row(
        kind=kind,
        target=target,
        faults=len(faults),
        requests=sum(any(_overlaps(request, fault) for fault in faults) for request in history),
        affected={harm: count for harm in Harm if (count := sum(x.harm is harm for x in own))},
        unavoidable=sum(loss.is_unavoidable for loss in own),
        recovery_s=sorted(
            fault.recovered_s - fault.started_s for fault in faults if fault.recovered_s is not None
        ),
    )


def _overlaps(request: StreamResult, fault: FaultRecord) -> bool:
    end = fault.recovered_s if fault.recovered_s is not None else float("inf")
    return request.started_s <= end and request.ended_s >= fault.started_s


def median(values: Sequence[float]) -> float | None:
    """None for no values."""
    return statistics.median(values) if values else None


def p99(values: Sequence[float]) -> float | None:
    """The 99th percentile (nearest rank); None for no values."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)] if values else None
