"""The System Load Test of Artificial Analysis: phases of rising concurrency.

1,000 input and 1,000 output tokens per request. Concurrency 1, 2, 4 … 64, then 64 more in each
phase, until the throughput no longer rises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median

from penstock.bench import aiperf
from penstock.bench.aiperf import Endpoint, Traffic
from penstock.bench.measurement import Failures
from penstock.bench.methods.artificial_analysis import (
    Speeds,
    fixed_requests,
    require_context,
    speeds_of,
)
from penstock.bench.records import Records
from penstock.bench.run import INTERRUPTED, Progress, Sent, new_folder, send
from penstock.errors import BenchError
from penstock.simulate.window import ServedRequest, tokens_between

TOKENS = 1000  # of the input, and of the output
PHASE_S = 180.0
DOUBLED_UP_TO, STEP = 64, 64
RISE = 1.02  # of the throughput, below which it counts as no longer rising
SPARE = 1.3  # prompts, times the number that the fastest request so far allows
RAMP = 1.5  # times the duration of a request


class Phase(Speeds):
    """One concurrency."""

    concurrency: int
    """Requests at the same time."""
    window_s: float
    """Without the ramp-up and the last responses."""
    system_throughput: float
    """Output tokens/s of all requests in the window."""
    response_rate: float
    """Share of the requests that were served."""


@dataclass(frozen=True, kw_only=True)
class SystemLoad:
    endpoint: Endpoint
    phase_s: float
    """That was requested."""
    phases: Sequence[Phase]
    reached_ceiling: bool
    """Whether the throughput stopped rising."""
    interrupted: str

    @property
    def best(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.system_throughput)


def levels(most: int | None) -> Iterator[int]:
    """The concurrencies in order, up to ``most``; None: without an end."""
    level = 1
    while most is None or level <= most:
        yield level
        level = level * 2 if level < DOUBLED_UP_TO else level + STEP


def system_load(
    endpoint: Endpoint,
    phase_s: float,
    most: int | None,
    folder: Path,
    progress: Progress,
    *,
    timeout_s: float,
) -> SystemLoad:
    """Measure phases of ``phase_s`` seconds up to concurrency ``most``. Raises as
    `bench.run.send` does for the first one; a later one that fails ends the test."""
    aiperf.require_environment()
    require_context(endpoint, TOKENS, TOKENS)
    test = _Test(endpoint, phase_s, folder, progress, timeout_s)
    phases: list[Phase] = []
    reached, interrupted = False, ""
    for level in levels(most):
        try:
            phase, interrupted = test.phase(level)
        except (BenchError, KeyboardInterrupt) as error:
            if not phases:
                raise
            interrupted = str(error) or INTERRUPTED
            break
        best = max((phase.system_throughput for phase in phases), default=0.0)
        phases.append(phase)
        reached = phase.system_throughput < RISE * best
        if interrupted or reached or not phase.response_rate:
            break
    return SystemLoad(
        endpoint=endpoint,
        phase_s=phase_s,
        phases=phases,
        reached_ceiling=reached and not interrupted,
        interrupted=interrupted,
    )


class _Test:
    """Runs the phases, each of which needs the durations of the one before."""

    def __init__(
        self,
        endpoint: Endpoint,
        phase_s: float,
        folder: Path,
        progress: Progress,
        timeout_s: float,
    ) -> None:
        self._endpoint, self._phase_s, self._timeout_s = endpoint, phase_s, timeout_s
        self._folder, self._progress = folder, progress
        self._fastest_ms = self._usual_ms = 0.0

    def phase(self, level: int) -> tuple[Phase, str]:
        """And what ended it early; empty if nothing did."""
        if not self._usual_ms:
            self._take(self._send(1, 1, None, "first-request").records[0])
        duration_s = self._phase_s + RAMP * self._usual_ms / 1000
        count = level + ceil(SPARE * level * duration_s * 1000 / self._fastest_ms)
        sent = self._send(level, count, duration_s, f"concurrency-{level}")
        records = sent.records[0]
        self._take(records)
        phase = phase_of(records, level, duration_s, self._phase_s, count, sent.cpu_share)
        return phase, sent.interrupted

    def _send(self, level: int, count: int, duration_s: float | None, name: str) -> Sent:
        traffic = Traffic(
            endpoint=self._endpoint,
            requests=fixed_requests(count, TOKENS, TOKENS),
            concurrency=level,
            folder=new_folder(self._folder / name),
            timeout_s=self._timeout_s,
            duration_s=duration_s,
        )

        def at_level(text: str, done: int, total: int) -> None:
            self._progress(f"concurrency {level}: {text}", done, total)

        return send([traffic], at_level)

    def _take(self, records: Records) -> None:
        durations = [request.e2e_ms for request in records.served.values()]
        if durations:
            self._usual_ms = median(durations)
            self._fastest_ms = min([*durations, self._fastest_ms or durations[0]])
        elif not self._usual_ms:
            reasons = ", ".join(sorted({failure.reason for failure in records.failed}))
            message = f"did not serve the first request: {reasons}"
            raise BenchError(message, place=self._endpoint.url)


def phase_of(
    records: Records,
    level: int,
    duration_s: float,
    phase_s: float,
    prepared: int,
    cpu_share: float,
) -> Phase:
    """``duration_s``: for which requests were sent; ``phase_s``: the longest window. ``prepared``:
    number of requests; if all were sent, the concurrency was lower after the last one."""
    served = list(records.served.values())
    begin, end = _window(served, duration_s)
    if records.unsent == 0 and len(served) + len(records.failed) == prepared and served:
        end = min(end, served[-1].arrived_ms)
    begin = max(begin, end - phase_s * 1000)
    seconds = max(end - begin, 0.0) / 1000
    tokens = sum(tokens_between(request, begin, end) for request in served)
    speeds = speeds_of(records, cpu_share)
    failures: Failures = speeds["failures"]
    return Phase(
        **speeds,
        concurrency=level,
        window_s=seconds,
        system_throughput=tokens / seconds if seconds else 0.0,
        response_rate=1 - failures.share if failures.sent else 0.0,
    )


def _window(served: Sequence[ServedRequest], duration_s: float) -> tuple[float, float]:
    """From one median request duration after the first request until no request is sent, in ms."""
    if not served:
        return 0.0, 0.0
    first = served[0].arrived_ms
    return first + median(request.e2e_ms for request in served), first + duration_s * 1000
