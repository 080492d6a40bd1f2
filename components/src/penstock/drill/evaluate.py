"""Classify the requests that failed during a drill, from the history of requests and faults.

Pure.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.drill.traffic import Ending, StreamResult
from penstock.manifests.deployment import WORKERS, Role
from penstock.reports.json_document import Document
from penstock.simulate.window import percentile


class FailureType(StrEnum):
    """What went wrong with a request."""

    LOST = "lost"  # no response, or an error after all retries
    TRUNCATED = "truncated"
    DUPLICATED = "duplicated"
    WRONG = "wrong"  # other tokens than without faults
    STALLED = "stalled"  # complete, but nothing arrived for longer than the limit


BREAK_S = 1.0  # between the recovery and the last stream that breaks
NOT_MIGRATABLE = "Dynamo does not migrate a request with a grammar from a lost worker (dynamo#7930)"
# A process that is suspended alone is replaced within 3 s, and its streams continue on another.
DETECTED_S = 5.0
# A fault caused a time without completed requests if it is this long, and so many times as long as
# the longest one before the first fault: concurrent requests complete in groups.
PAUSE_S, PAUSES = 1.0, 1.5


@dataclass(frozen=True, kw_only=True)
class FaultRecord:
    """One injected fault. Times are in seconds on the clock of the history."""

    number: int
    """Number of the fault, in order of injection."""
    kind: str
    """Kind of the fault."""
    target: str
    """Process, such as `decode.0`; `graph` for a fault of all processes."""
    role: Role | None
    """Role of the process in the graph; null for a fault of all processes."""
    started_s: float
    """Start of the injection, in seconds since the start of the drill."""
    ended_s: float
    """End of the injection, in seconds since the start of the drill."""
    recovered_s: float | None
    """When all processes were ready again, in seconds since the start of the drill; null if not
    within the time limit."""
    has_survivor: bool
    """Whether another process could serve the requests of the target."""
    clients: tuple[int, ...] | None = ()
    """Ports of the clients that were connected to the target; null if any may have been."""
    port: int | None = None
    """HTTP port of the target; null if it is not a frontend or an Envoy."""
    is_outage: bool = False
    """Whether nothing could serve until the recovery."""
    stalls: bool = False
    """Whether the fault suspended processes or their connections, so that streams waited."""
    is_of_network: bool = False
    """Whether the fault lost or delayed packets, which TCP sends again after a time that
    doubles."""
    ends_requests: bool = False
    """Whether the fault ended workers without a drain, so that their requests had to migrate."""
    outcome: str = ""
    """What became of the fault, such as why it was refused; empty if it was injected."""
    served_s: float | None = None
    """End of a pause in which no request completed, in seconds since the start of the drill; null
    if the fault caused none."""

    @property
    def program(self) -> str:
        """The component of the process; `graph` for a fault of all processes."""
        return self.target.partition(".")[0]

    @property
    def recovery_s(self) -> float | None:
        """Seconds until all processes are ready and requests complete again; None if the processes
        did not become ready."""
        if self.recovered_s is None:
            return None
        return max(self.recovered_s, self.served_s or 0.0) - self.started_s

    @property
    def moves_streams(self) -> bool:
        """Whether the streams of the lost worker continue on another one."""
        is_worker = self.role in WORKERS and not self.is_of_network
        return is_worker and self.has_survivor and self.ends_requests

    @property
    def over_s(self) -> float:
        """The fault has ended, and every process is ready again."""
        recovered_s = float("inf") if self.recovered_s is None else self.recovered_s
        return max(recovered_s, self.ended_s)

    def held(self, request: StreamResult) -> bool:
        """Whether the request's connection was to the target."""
        if self.role is Role.FRONTEND and request.frontend_port is not None:
            return request.frontend_port == self.port
        if self.clients is None:
            return request.started_s <= self.started_s
        return request.client_port in self.clients


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed request."""

    request: StreamResult
    type: FailureType
    fault: FaultRecord | None
    """The last fault that began before the request failed; None: before any fault."""
    is_unavoidable: bool
    cause: str

    @property
    def is_not_migratable(self) -> bool:
        """Whether it is unavoidable only because Dynamo does not migrate the request."""
        return self.is_unavoidable and self.cause == NOT_MIGRATABLE


class FaultRow(Document):
    """Faults of one kind and target."""

    kind: str
    """Kind of the faults."""
    target: str
    """Component of the processes; `graph` for faults of all processes."""
    faults: int
    """Number of faults."""
    requests: int
    """Number of requests that ran between one of these faults and its recovery."""
    failed: Mapping[FailureType, int]
    """Number of failed requests by type; types without failures are missing."""
    unavoidable: int
    """Number of failed requests that no other process could have served."""
    not_migratable: int
    """Number of unavoidable failures of requests with a grammar, which Dynamo does not migrate from
    a lost worker."""
    retried: int
    """Number of requests that clients sent again after an error."""
    recovery_s_median: float | None
    """Median seconds from the injection until all processes are ready and requests complete again;
    null if none recovered."""
    recovery_s_p99: float | None
    """p99 of the seconds until all processes are ready and requests complete again; null if none
    recovered."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of a drill."""

    requests: int
    failures: tuple[Failure, ...]
    rows: tuple[FaultRow, ...]
    not_recovered: tuple[FaultRecord, ...]
    leftovers: tuple[str, ...]
    """Processes and files that were left when the graph had stopped."""
    permitted: Mapping[str, int] = field(default_factory=dict)
    """Kind → avoidable failures that each of its faults may cause."""
    retried: int = 0
    """Number of requests that clients sent again."""
    too_slow: tuple[FaultRecord, ...] = ()
    """The faults whose recovery took longer than their kind may."""

    @property
    def not_migratable(self) -> int:
        """Number of failed requests that Dynamo does not migrate."""
        return sum(failure.is_not_migratable for failure in self.failures)

    @property
    def avoidable(self) -> tuple[Failure, ...]:
        """The failures that are not unavoidable."""
        return tuple(failure for failure in self.failures if not failure.is_unavoidable)

    @property
    def above_limit(self) -> tuple[str, ...]:
        """The kinds of which a fault caused more avoidable failures than permitted; "" for failures
        before any fault."""
        counts = Counter(failure.fault.number if failure.fault else 0 for failure in self.avoidable)
        kinds = {
            failure.fault.number: failure.fault.kind for failure in self.avoidable if failure.fault
        }
        above = {
            kinds.get(number, "")
            for number, count in counts.items()
            if count > self.permitted.get(kinds.get(number, ""), 0)
        }
        return tuple(sorted(above))

    @property
    def passes(self) -> bool:
        return not (self.above_limit or self.not_recovered or self.too_slow or self.leftovers)


def with_pauses(
    faults: Sequence[FaultRecord], history: Sequence[StreamResult]
) -> tuple[FaultRecord, ...]:
    """The faults with the end of the pause that clients saw: processes that are ready do not serve
    at once."""
    times = sorted(request.ended_s for request in history if not request.error)
    gaps = list(itertools.pairwise(times))
    first_s = min((fault.started_s for fault in faults), default=0.0)
    usual = [after - before for before, after in gaps if after <= first_s]
    if not usual:
        return tuple(faults)
    least_s = max(PAUSE_S, PAUSES * max(usual))
    next_s = [*(fault.started_s for fault in faults[1:]), float("inf")]
    return tuple(
        replace(fault, served_s=_pause_end(fault, gaps, least_s, until_s))
        for fault, until_s in zip(faults, next_s, strict=True)
    )


def _pause_end(
    fault: FaultRecord, gaps: Sequence[tuple[float, float]], least_s: float, until_s: float
) -> float | None:
    """The end of the last pause of at least ``least_s`` that was there between the fault and its
    recovery; at most ``until_s``, the start of the next fault."""
    ends = [
        min(after, until_s)
        for before, after in gaps
        if before <= fault.over_s
        and after >= fault.started_s
        and after - max(before, fault.started_s) >= least_s
    ]
    return max(ends, default=None)


def evaluate(
    history: Sequence[StreamResult],
    faults: Sequence[FaultRecord],
    *,
    stall_s: float,
    expected: Mapping[int, str] | None = None,
    leftovers: Sequence[str] = (),
    permitted: Mapping[str, int] | None = None,
    recovery_s: Mapping[str, float] | None = None,
) -> Evaluation:
    """``expected``: number of a request → its text without faults, for deterministic engines;
    ``permitted``: kind → avoidable failures that each of its faults may cause;
    ``recovery_s``: kind → seconds that the recovery from each of its faults may take.
    """
    limits_s = recovery_s or {}
    failures = []
    for request in history:
        type_ = _failure_type(request, stall_s, expected or {})
        if type_ is not None:
            at_s = request.gap_ended_s if type_ is FailureType.STALLED else request.ended_s
            failures.append(_failure(request, type_, _fault_at(at_s, faults), stall_s))
    groups: dict[tuple[str, str], list[FaultRecord]] = {}
    for fault in faults:
        groups.setdefault((fault.kind, fault.program), []).append(fault)
    causes = (_fault_at(r.rejected_s, faults) for r in history if r.rejected_s is not None)
    retried = Counter((fault.kind, fault.program) for fault in causes if fault is not None)
    return Evaluation(
        requests=len(history),
        failures=tuple(failures),
        rows=tuple(
            _row(*key, group, history, failures, retried[key])
            for key, group in sorted(groups.items())
        ),
        not_recovered=tuple(fault for fault in faults if fault.recovered_s is None),
        leftovers=tuple(leftovers),
        permitted=permitted or {},
        retried=sum(request.rejected_s is not None for request in history),
        too_slow=tuple(
            fault
            for fault in faults
            if fault.recovery_s is not None
            and fault.recovery_s > limits_s.get(fault.kind, float("inf"))
        ),
    )


def _failure_type(
    request: StreamResult, stall_s: float, expected: Mapping[int, str]
) -> FailureType | None:
    if request.ending in (Ending.REJECTED, Ending.REFUSED):
        return FailureType.LOST
    if request.ending is Ending.TRUNCATED:
        return FailureType.TRUNCATED
    if request.ending is Ending.DUPLICATED:
        return FailureType.DUPLICATED
    if request.error or expected.get(request.number, request.text) != request.text:
        return FailureType.WRONG
    if request.longest_gap_s > stall_s:
        return FailureType.STALLED
    return None


def _fault_at(time_s: float, faults: Sequence[FaultRecord]) -> FaultRecord | None:
    before = [fault for fault in faults if fault.started_s <= time_s]
    return max(before, key=lambda fault: fault.started_s) if before else None


def _failure(
    request: StreamResult, type_: FailureType, fault: FaultRecord | None, stall_s: float
) -> Failure:
    cause, is_unavoidable = _cause(request, type_, fault, stall_s)
    return Failure(
        request=request, type=type_, fault=fault, is_unavoidable=is_unavoidable, cause=cause
    )


def _cause(
    request: StreamResult, type_: FailureType, fault: FaultRecord | None, stall_s: float
) -> tuple[str, bool]:
    """The cause, and whether it was unavoidable: no other process could have served the request.

    A stream is lost with the frontend or Envoy that has its connection, and a request with a
    grammar with its worker. A stalled stream continues once the hung process is detected. A retry
    or a migration could have avoided everything else.
    """
    if fault is None:
        return "no fault had been injected yet", False
    is_broken = type_ in (FailureType.LOST, FailureType.TRUNCATED)
    is_stalled = type_ is FailureType.STALLED and _stalled_by(fault, request, stall_s)
    if is_broken and request.ended_s > fault.over_s + BREAK_S:
        return f"it failed after the recovery from {fault.kind} {fault.target}", False
    if fault.is_outage and (is_broken or is_stalled) and request.started_s <= fault.over_s:
        return "no process was running that could serve it", True
    ends_envoy = fault.target.startswith("endpoint") and fault.ends_requests  # SIGTERM drains it
    holds_streams = fault.role is Role.FRONTEND or ends_envoy
    if holds_streams and is_broken:
        return _cause_of_break(request, fault)
    if fault.stalls and is_stalled:
        if fault.moves_streams and request.longest_gap_s > max(stall_s, DETECTED_S):
            waited = f"the stream waited for {request.longest_gap_s:.1f} s"
            return f"{waited}: {fault.target} was not replaced within {DETECTED_S:.0f} s", False
        return f"the stream waited until {fault.target} resumed or was replaced", True
    was_streaming = type_ is FailureType.TRUNCATED and fault.role in WORKERS
    if was_streaming and request.kind.has_grammar and fault.ends_requests:
        return NOT_MIGRATABLE, True
    if fault.role is None and "." not in fault.target:
        return "the fault did not close its connection; a retry should have succeeded", False
    if fault.has_survivor:
        return f"another replica could have served it instead of {fault.target}", False
    return f"{fault.program} has one replica. Fix: set `{fault.program}.replicas: 2`.", False


def _stalled_by(fault: FaultRecord, request: StreamResult, stall_s: float) -> bool:
    """Whether the longest gap is, apart from what is no stall, within the fault's time."""
    began_s = request.gap_ended_s - request.longest_gap_s
    grace_s = max(stall_s, fault.over_s - fault.started_s) if fault.is_of_network else stall_s
    is_later = began_s > fault.over_s or request.gap_ended_s > fault.over_s + grace_s
    return not is_later and began_s >= fault.started_s - stall_s


def _cause_of_break(request: StreamResult, fault: FaultRecord) -> tuple[str, bool]:
    if fault.held(request):
        was = "may have been" if fault.clients is None else "was"
        return f"the connection {was} to {fault.target}", True
    if fault.has_survivor:
        return f"the connection was not to {fault.target}, or a retry should have succeeded", False
    if request.started_s <= fault.started_s:
        return f"the connection was to {fault.target}", True  # there is no other
    envoy = "" if fault.port is None else " and run `penstock tools env install envoy`"
    return (
        f"no other frontend could take the request. Fix: set `frontend.replicas: 2`{envoy}.",
        False,
    )


def _row(
    kind: str,
    target: str,
    faults: Sequence[FaultRecord],
    history: Sequence[StreamResult],
    failures: Sequence[Failure],
    retried: int,
) -> FaultRow:
    numbers = {fault.number for fault in faults}
    failures_of_fault = [
        failure
        for failure in failures
        if failure.fault is not None and failure.fault.number in numbers
    ]
    seconds = sorted(fault.recovery_s for fault in faults if fault.recovery_s is not None)
    return FaultRow(
        kind=kind,
        target=target,
        faults=len(faults),
        requests=sum(any(_overlaps(request, fault) for fault in faults) for request in history),
        failed={
            type_: count
            for type_ in FailureType
            if (count := sum(x.type is type_ for x in failures_of_fault))
        },
        unavoidable=sum(failure.is_unavoidable for failure in failures_of_fault),
        not_migratable=sum(failure.is_not_migratable for failure in failures_of_fault),
        retried=retried,
        recovery_s_median=round(statistics.median(seconds), 2) if seconds else None,
        recovery_s_p99=round(percentile(seconds, 0.99), 2) if seconds else None,
    )


def _overlaps(request: StreamResult, fault: FaultRecord) -> bool:
    end = fault.recovered_s if fault.recovered_s is not None else float("inf")
    return request.started_s <= end and request.ended_s >= fault.started_s
