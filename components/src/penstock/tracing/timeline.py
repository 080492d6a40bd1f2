"""Which requests each worker had at a time. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.tracing.requests import StageName, TracedRequest, Visit


@dataclass(frozen=True, kw_only=True)
class _Interval:
    """A request at a worker; times in ns since the epoch."""

    start: int
    end: int
    request: TracedRequest


class _Intervals:
    """The intervals of one worker, by their start.

    A search skips those that started more than the longest duration before it. So it is fast as
    long as no request takes a large part of the recorded time.
    """

    def __init__(self, intervals: Iterable[_Interval] = ()) -> None:
        self._by_start = sorted(intervals, key=_start)
        self._longest = max((one.end - one.start for one in self._by_start), default=0)

    def overlapping(self, first: int, last: int) -> Iterator[_Interval]:
        """Those that started at ``last`` or before, and ended after ``first``."""
        begin = bisect_right(self._by_start, first - self._longest - 1, key=_start)
        until = bisect_right(self._by_start, last, key=_start)
        return (one for one in self._by_start[begin:until] if one.end > first)


def _start(interval: _Interval) -> int:
    return interval.start


def _by_worker(intervals: Iterable[tuple[str, _Interval]]) -> dict[str, _Intervals]:
    found: dict[str, list[_Interval]] = defaultdict(list)
    for worker, one in intervals:
        found[worker].append(one)
    return {worker: _Intervals(those) for worker, those in found.items()}


class RequestTimeline:
    """The requests of each worker over time."""

    def __init__(self, requests: Sequence[TracedRequest]) -> None:
        self._requests = requests

    @cached_property
    def _prefills(self) -> dict[str, _Intervals]:
        return _by_worker(
            (visit.worker, _Interval(start=visit.start_ns, end=_prefill_end(r), request=r))
            for r in self._requests
            if (visit := r.prefill or r.decode) is not None
        )

    @cached_property
    def _decodes(self) -> dict[str, _Intervals]:
        return _by_worker(
            (r.decode.worker, _Interval(start=r.decode.start_ns, end=r.decode.end_ns, request=r))
            for r in self._requests
            if r.decode is not None
        )

    def queued_tokens(self, request: TracedRequest) -> float:
        """Prompt tokens of earlier requests that the prefill worker had not computed when this one
        came; a request that was partly computed counts with the rest of its time."""
        visit = request.prefill or request.decode
        if visit is None:
            return 0.0
        now = visit.start_ns
        return sum(
            computed_tokens(one.request) * (one.end - now) / max(one.end - one.start, 1)
            for one in self._prefills.get(visit.worker, _Intervals()).overlapping(now, now)
            if one.request is not request
        )

    def concurrent_tokens(self, visit: Visit) -> int:
        """Tokens of all requests that overlapped with ``visit`` at its decode worker, including
        its own."""
        intervals = self._decodes.get(visit.worker, _Intervals())
        return sum(
            one.request.input_tokens + one.request.output_tokens
            for one in intervals.overlapping(visit.start_ns, visit.end_ns - 1)
        )


def computed_tokens(request: TracedRequest) -> int:
    """Tokens of the prompt that the worker had not cached."""
    return request.input_tokens - (request.cached_tokens or 0)


def _prefill_end(request: TracedRequest) -> int:
    """Of a request with a worker: it has this stage."""
    ends = (stage.end_ms for stage in request.stages if stage.name is StageName.PREFILL)
    return request.start_ns + int(next(ends) * 1e6)
