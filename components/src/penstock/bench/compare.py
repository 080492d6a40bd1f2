"""Compares two endpoints in one run: both get the same requests, in interleaved slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from random import Random
from typing import Literal

from penstock.bench import aiperf
from penstock.bench.difference import MIN_PAIRS, Both, Difference, differences
from penstock.bench.measurement import Failures, distortion_of
from penstock.bench.records import Records
from penstock.bench.run import Endpoint, Traffic, new_folder, send
from penstock.bench.slices import Schedule, Slicing, schedules
from penstock.bench.watch import Progress
from penstock.errors import BenchError, Problem, UsageError
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.window import percentile
from penstock.text.numbers import significant
from penstock.workload import Request
from penstock.workload.load import LoadedWorkload

Name = Literal["A", "B"]
NAMES: tuple[Name, Name] = ("A", "B")
MORE = 1.3  # × the expected number of requests are sampled, so that they last for all slices


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
    client: str
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
        raise UsageError(Problem(place="--workload", message=message, fix=fix))
    loaded = request.workload
    if workload.fixed_requests is not None and workload.mean_rate:
        expected = workload.mean_rate * needed_ms / 1000
        loaded = loaded.with_workload(workload.with_requests(ceil(MORE * expected) + 50))
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
    raise UsageError(Problem(place=place, message=message, fix=fix))


def _require_filled(request: CompareRequest, requests: Sequence[Request]) -> None:
    slicing = request.slicing
    filled = {int((each.at_ms or 0.0) // slicing.slice_ms) for each in requests}
    count = sum(0 < number < slicing.pairs for number in filled)
    if count < MIN_PAIRS:
        message = f"only {count} of {slicing.pairs - 1} slices would have a request"
        fix = "Use a higher --rate, or a longer --slice and --duration."
        raise UsageError(Problem(place="--rate", message=message, fix=fix))


def compare(request: CompareRequest, folder: Path, progress: Progress) -> Comparison:
    """Send the requests and compare; all files are kept in ``folder``, which exists. Raises as
    `send` and `sliced_requests` do."""
    both = schedules(sliced_requests(request), request.slicing, Random(request.seed))
    sent = send(list(_traffic(request, both, folder)), request.timeout_s, progress)
    first, second = sent.records
    pairs = _pairs(both[0], first, second)
    return Comparison(
        request=request,
        client=aiperf.VERSION,
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
        raise BenchError(Problem(message=f"no verdict: {comparison.no_verdict}", fix=fix))
