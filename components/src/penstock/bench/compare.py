"""Compares two endpoints in one run: both get the same requests, in interleaved slices.

A pair of slices has the same requests, first for one target and then for the other, in random
order. So a change of the network or of the machine affects both, and the difference of a pair does
not depend on the lengths of its requests. `--fail-if` limits the changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Literal

from penstock.bench.aiperf import Endpoint, Traffic
from penstock.bench.difference import (
    INTERVAL,
    METRICS,
    MIN_PAIRS,
    Both,
    Difference,
    differences,
    interval,
)
from penstock.bench.measurement import Failures, distortion_of
from penstock.bench.records import Records
from penstock.bench.run import Progress, new_folder, send
from penstock.bench.trace_file import Key, keyed
from penstock.errors import BenchError, LimitError, Problem, UndecidedError, UsageError
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.window import percentile
from penstock.text.numbers import significant
from penstock.workload import Request
from penstock.workload.load import LoadedWorkload

Name = Literal["A", "B"]
NAMES: tuple[Name, Name] = ("A", "B")
MORE = 1.3  # × the expected number of requests are sampled, so that they last for all slices
_LIMIT = re.compile(r"\s*(\w+)\s*>\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, kw_only=True)
class Slicing:
    """How two targets share the time of a run."""

    pairs: int
    """Number of pairs of slices, including the first, which warms up both targets and is not
    counted."""
    slice_ms: float
    """Duration of one slice in ms."""
    gap_ms: float
    """Pause after each slice in ms, for its last responses."""

    @property
    def traffic_ms(self) -> float:
        """Duration of the traffic that each target gets."""
        return self.pairs * self.slice_ms

    @property
    def slot_ms(self) -> float:
        return self.slice_ms + self.gap_ms


def slicing_of(*, duration_ms: float, slice_ms: float, gap_ms: float) -> Slicing:
    """As many pairs as fit into ``duration_ms``; UsageError if they are too few."""
    pair_ms = 2 * (slice_ms + gap_ms)
    pairs = int(duration_ms // pair_ms)
    if pairs <= MIN_PAIRS:  # the first one is not counted
        needed_s = (MIN_PAIRS + 1) * pair_ms / 1000
        length, slice_text = significant(duration_ms / 1000, 4), significant(slice_ms / 1000, 4)
        message = f"{length} s are too short for slices of {slice_text} s"
        fix = f"Use at least {math.ceil(needed_s)}s, or shorter slices."
        raise UsageError(message, place="--duration", fix=fix)
    return Slicing(pairs=pairs, slice_ms=slice_ms, gap_ms=gap_ms)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What one target gets."""

    requests: dict[Key, Request]
    """With the time of the run at which each is sent."""
    pairs: dict[Key, int]
    ends_ms: dict[Key, float]
    """When the other target's turn may begin."""


def schedules(
    requests: Sequence[Request], slicing: Slicing, random: Random
) -> tuple[Schedule, Schedule]:
    """Of both targets, with the same keys.

    ``requests``: in order of arrival, without conversations; those after the last slice are left
    out.
    """
    used = [request for request in requests if (request.at_ms or 0.0) < slicing.traffic_ms]
    second_first = [random.random() < 0.5 for _ in range(slicing.pairs)]
    return (
        _schedule(used, slicing, [int(swapped) for swapped in second_first]),
        _schedule(used, slicing, [1 - int(swapped) for swapped in second_first]),
    )


def _schedule(requests: Sequence[Request], slicing: Slicing, turns: Sequence[int]) -> Schedule:
    """``turns``: for each pair, 0 if this target is the first, else 1."""
    moved, pairs, ends = {}, {}, {}
    for key, request in keyed(requests).items():
        at_ms = request.at_ms or 0.0
        pair = int(at_ms // slicing.slice_ms)
        begin = (2 * pair + turns[pair]) * slicing.slot_ms
        moved[key] = replace(request, at_ms=begin + at_ms - pair * slicing.slice_ms)
        pairs[key] = pair
        ends[key] = begin + slicing.slot_ms
    return Schedule(requests=moved, pairs=pairs, ends_ms=ends)


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    endpoints: tuple[Endpoint, Endpoint]
    workload: LoadedWorkload
    slicing: Slicing
    seed: int
    timeout_s: float
    """Of one request."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two endpoints under the same requests. ``pairs`` and ``requests`` are those counted."""

    request: CompareRequest
    pairs: int
    requests: int
    differences: Sequence[Difference]
    """Empty if too few requests were served to compare."""
    failures: tuple[Failures, Failures]
    unsent: tuple[int, int]
    """Requests of each endpoint that were not sent, or have no record."""
    skew_ms: float
    """By how much the load of one endpoint began later."""
    overlapping: float
    """Share of the responses that ended after the other target's slice had begun."""
    distortion: str
    """Why this machine may have distorted the latencies; empty if it has not."""
    interrupted: str
    served: Sequence[Sequence[Both]] = field(default=(), repr=False)
    """The counted requests of each pair of slices, for charts."""

    @property
    def mocked(self) -> tuple[str, ...]:
        """The models that mockers served instead of an engine."""
        mocked = (
            endpoint.model for endpoint in self.request.endpoints if endpoint.engine_is_substitute
        )
        return tuple(dict.fromkeys(mocked))

    @property
    def has_verdict(self) -> bool:
        """Whether the served requests represent the traffic of both endpoints."""
        return not self.no_verdict

    @property
    def no_verdict(self) -> str:
        """Why there is none; empty if there is one."""
        for name, failures in zip(NAMES, self.failures, strict=True):
            if failures.share > MAX_REFUSED:
                return f"{failures.share:.1%} of the requests to {name} failed"
        if not self.differences:
            return f"{self.pairs} pairs of slices were served; {MIN_PAIRS} are needed"
        return ""


def sliced_requests(request: CompareRequest) -> Sequence[Request]:
    """For all slices. UsageError for traffic that cannot be divided or is too short."""
    workload, needed_ms = request.workload.workload, request.slicing.traffic_ms
    if workload.concurrency or workload.conversation:
        what = "a fixed concurrency" if workload.concurrency else "conversations"
        message = f"{request.workload.name} has {what}, so it cannot be divided into slices"
        fix = "Compare two targets with a workload of independent requests that have arrival times."
        raise UsageError(message, place="--workload", fix=fix)
    loaded = request.workload
    if workload.fixed_requests is not None and workload.mean_rate:
        expected = workload.mean_rate * needed_ms / 1000
        loaded = loaded.with_workload(workload.with_requests(math.ceil(MORE * expected) + 50))
    requests = loaded.requests(request.seed)
    _require_length(request, requests)
    _require_filled(request, requests)
    return requests


def _require_length(request: CompareRequest, requests: Sequence[Request]) -> None:
    slicing = request.slicing
    lasts_ms = max((each.at_ms or 0.0 for each in requests), default=0.0)
    if lasts_ms >= slicing.traffic_ms:
        return
    message = (
        f"{significant(slicing.traffic_ms / 1000, 4)} s of traffic are needed for each target, and "
    )
    message += f"{request.workload.name} lasts {significant(lasts_ms / 1000, 4)} s"
    place, fix = "--duration", "Use a shorter one."
    if lasts_ms < (MIN_PAIRS + 1) * slicing.slice_ms:
        place, fix = "--workload", "Use longer traffic, or a shorter --slice and --duration."
    raise UsageError(message, place=place, fix=fix)


def _require_filled(request: CompareRequest, requests: Sequence[Request]) -> None:
    slicing = request.slicing
    filled = {int((each.at_ms or 0.0) // slicing.slice_ms) for each in requests}
    count = sum(0 < number < slicing.pairs for number in filled)
    if count < MIN_PAIRS:
        message = f"only {count} of {slicing.pairs - 1} slices would have a request"
        fix = "Use a higher --rate, or a longer --slice and --duration."
        raise UsageError(message, place="--rate", fix=fix)


def compare(request: CompareRequest, folder: Path, progress: Progress) -> Comparison:
    """Send the requests and compare; all files are kept in ``folder``, which exists. Raises as
    `send` and `sliced_requests` do."""
    both = schedules(sliced_requests(request), request.slicing, Random(request.seed))
    sent = send(_traffic(request, both, folder), progress)
    first, second = sent.records
    pairs = _pairs(both[0], first, second)
    return Comparison(
        request=request,
        pairs=len(pairs),
        requests=sum(map(len, pairs)),
        differences=differences(pairs) if len(pairs) >= MIN_PAIRS else (),
        failures=(Failures.of(first), Failures.of(second)),
        unsent=(first.unsent, second.unsent),
        skew_ms=abs(first.start_ms - second.start_ms),
        overlapping=_overlapping(both, first, second),
        distortion=_distortion(sent.records, sent.cpu_share, pairs),
        interrupted=sent.interrupted,
        served=pairs,
    )


def _traffic(
    request: CompareRequest, both: tuple[Schedule, Schedule], folder: Path
) -> Sequence[Traffic]:
    return [
        Traffic(
            endpoint=endpoint,
            requests=schedule.requests,
            concurrency=None,
            folder=new_folder(folder / name),
            timeout_s=request.timeout_s,
        )
        for name, endpoint, schedule in zip(NAMES, request.endpoints, both, strict=True)
    ]


def _pairs(schedule: Schedule, first: Records, second: Records) -> list[list[Both]]:
    """Without the first pair, which warms up, and without requests that a target did not serve."""
    pairs: dict[int, list[Both]] = {}
    for key, pair in schedule.pairs.items():
        if pair and key in first.served and key in second.served:
            pairs.setdefault(pair, []).append((first.served[key], second.served[key]))
    return [pairs[number] for number in sorted(pairs)]


def _overlapping(both: tuple[Schedule, Schedule], first: Records, second: Records) -> float:
    start_ms = min(first.start_ms, second.start_ms)
    late = [
        records.start_ms - start_ms + served.ended_ms > schedule.ends_ms[key]
        for schedule, records in zip(both, (first, second), strict=True)
        for key, served in records.served.items()
    ]
    return sum(late) / len(late) if late else 0.0


def _distortion(
    records: Sequence[Records], cpu_share: float, pairs: Sequence[Sequence[Both]]
) -> str:
    """By the endpoint with the shorter TTFT."""
    ttft = [[both[i].ttft_ms for pair in pairs for both in pair] for i in (0, 1)]
    late_ms = max((percentile(each.late_ms, 0.99) for each in records), default=0.0)
    return distortion_of(
        late_ms, min(percentile(values, 0.5) for values in ttft) or None, cpu_share
    )


def require_results(comparison: Comparison) -> None:
    """BenchError if nothing can be compared."""
    if not comparison.differences:
        fix = "Use a longer --duration, or correct the cause of the failures."
        raise BenchError(f"no verdict: {comparison.no_verdict}", fix=fix)


class Outcome(StrEnum):
    """Of a limit, by the interval of the change."""

    PASSED = "passed"
    EXCEEDED = "exceeded"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The most that a metric of the second target may be higher than that of the first."""

    metric: str
    """Metric of the limit, as in `differences`."""
    most: float
    """Highest permitted change from A to B as a share."""

    def __str__(self) -> str:
        return f"{self.metric} > {self.most * 100:+.4g}%"


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    limit: Limit
    """The limit of `--fail-if`."""
    outcome: Outcome
    """Whether the complete interval is below the limit, above it, or contains it."""
    reason: str
    """Interval that decided the outcome, or why there is none."""
    fix: str = ""
    """Option that may decide the limit; empty if it is decided."""

    def __str__(self) -> str:
        return f"{self.limit}: {self.outcome} ({self.reason})"


def limit_of(text: str) -> Limit:
    """ValueError with the reason if ``text`` is not a limit."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form 'ttft_p90 > +5%'")
    metric, percent = match.groups()
    if metric not in METRICS:
        raise ValueError(f"{metric!r} is not one of {', '.join(METRICS)}")
    return Limit(metric=metric, most=float(percent) / 100)


def check_limits(comparison: Comparison, limits: Sequence[Limit]) -> list[LimitCheck]:
    """Undecided if the interval contains the limit, and if there is no interval or no verdict."""
    return [_check(comparison, limit) for limit in limits]


def _check(comparison: Comparison, limit: Limit) -> LimitCheck:
    change = next(
        (difference for difference in comparison.differences if difference.metric == limit.metric),
        None,
    )
    if change is None or not comparison.has_verdict:
        reason = comparison.no_verdict or "no request has this metric"
        return LimitCheck(limit=limit, outcome=Outcome.UNDECIDED, reason=reason)
    if change.low is None or change.high is None:
        fix = "Use a longer --slice, a higher --rate, or the metric with _mean."
        return LimitCheck(limit=limit, outcome=Outcome.UNDECIDED, reason=interval(change), fix=fix)
    outcome, fix = Outcome.UNDECIDED, "Use a longer --duration."
    if change.low > limit.most:
        outcome, fix = Outcome.EXCEEDED, ""
    elif change.high <= limit.most:
        outcome, fix = Outcome.PASSED, ""
    reason = f"{INTERVAL} {interval(change)}"
    return LimitCheck(limit=limit, outcome=outcome, reason=reason, fix=fix)


def require_limits(checks: Sequence[LimitCheck]) -> None:
    """LimitError for the limits that are exceeded, else UndecidedError for those undecided."""
    exceeded = [check for check in checks if check.outcome is Outcome.EXCEEDED]
    if exceeded:
        raise LimitError(*map(_problem, exceeded))
    undecided = [check for check in checks if check.outcome is Outcome.UNDECIDED]
    if undecided:
        raise UndecidedError(*map(_problem, undecided))


def _problem(check: LimitCheck) -> Problem:
    return Problem(place="--fail-if", message=str(check), fix=check.fix)
