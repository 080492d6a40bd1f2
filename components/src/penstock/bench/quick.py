"""The quick calibration: how fast a worker prefills and decodes, from its own requests.

As llm-d's `calibrate.sh`, it measures the peak prefill throughput with prompts that no prefix cache
has. It adds the time of a decode step at two batch sizes. Each phase has requests of the same
lengths. Its first round, with one request of each client, is the warm-up.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import ceil, exp, log

import numpy as np
import psutil

from penstock.bench.aiperf import Endpoint
from penstock.bench.calibrate import (
    T_95,
    Array,
    Fit,
    Latencies,
    array_of,
    intervals_of,
    require_certain,
)
from penstock.bench.measurement import distortion_of
from penstock.bench.report import distorted
from penstock.bench.run import Progress
from penstock.errors import BenchError
from penstock.manifests.deployment import Role
from penstock.reports.json_document import Document
from penstock.simulate.calibration import Calibration, Factors, corrected
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Job, Replays, as_trace
from penstock.simulate.window import ServedRequest
from penstock.twin.twin import LiveClient, LiveError, RejectedError
from penstock.workload import Request

PROMPT, SHORTEST = 8192, 256  # tokens, of a step if it is not known; llm-d's CHUNK_SIZE
LONGEST = 16384  # tokens of a prompt
WAITING = 3  # prompts for each engine: one is computed, and the others are in the queue
BATCH = 8  # decoding requests of an engine
OUTPUT, SHORT = 33, 256  # tokens
TRIAL_S, LIMITS_S = 20.0, (25.0, 40.0, 20.0)  # of the phases; with the responses, two minutes
LAST_S = 30.0  # for the last responses
FEWEST = 4  # samples of a phase
BLOCKS = 8  # parts of the prefill phase
NORMAL, OF_MEDIAN = 1.4826, 1.2533  # of a normal distribution: scale / median deviation, and error
SETTLED, ITERATIONS = 0.002, 6


@dataclass(frozen=True, kw_only=True)
class Engines:
    """What the requests depend on."""

    chunk: int = PROMPT
    """Input tokens of a step."""
    prefill: int = 1
    """Engines that prefill: a worker with attention DP has several."""
    decode: int = 1
    """Engines that decode."""
    workers: int = 1
    """Workers that prefill."""

    @staticmethod
    def of(deployment: Replayable) -> Engines:
        first, last = deployment.pools[0], deployment.pools[-1]
        prefill = next((p for p in deployment.pools if p.role is Role.PREFILL), first)
        decode = next((p for p in deployment.pools if p.role is Role.DECODE), last)
        return Engines(
            chunk=int(prefill.engine["engine"]["max_num_batched_tokens"]),
            prefill=prefill.replicas * int(prefill.engine["dp_size"]),
            decode=decode.replicas * int(decode.engine["dp_size"]),
            workers=prefill.replicas,
        )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """``count`` requests, of which ``concurrency`` are sent at the same time."""

    input_tokens: int
    output_tokens: int
    concurrency: int
    count: int
    in_rounds: bool = False
    """Whether each request waits for all of the round before, so that a round decodes together."""

    @property
    def requests(self) -> list[Request]:
        request = Request(
            at_ms=0.0, input_tokens=self.input_tokens, output_tokens=self.output_tokens, blocks=()
        )
        return [request] * self.count


def phases(prompt: int, engines: Engines) -> tuple[Phase, Phase, Phase]:
    """Single requests; saturated prefill; many decoding requests."""
    waiting = WAITING * engines.prefill * ceil(engines.chunk / prompt)
    batch = BATCH * engines.decode
    short = min(SHORT, prompt)
    return (
        Phase(input_tokens=short, output_tokens=OUTPUT, concurrency=1, count=24),
        Phase(input_tokens=prompt, output_tokens=1, concurrency=waiting, count=16 * waiting),
        Phase(
            input_tokens=short,
            output_tokens=2 * OUTPUT,
            concurrency=batch,
            count=12 * batch,
            in_rounds=True,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Timings:
    """What a served phase shows, in milliseconds; one value for each sample."""

    ttft: Array
    """Of single requests."""
    prefill: Array
    """Between the ends of two prefills, on all engines."""
    alone: Array
    """A decode step with one request."""
    batch: Array
    """A decode step with many requests."""

    @staticmethod
    def of(served: Sequence[Sequence[ServedRequest]], waiting: int, batch: int) -> Timings:
        single, saturated, many = served
        ends = sorted(request.first_ms for request in saturated)[waiting - 1 :]
        gaps = array_of([after - before for before, after in pairwise(ends)])
        itl = array_of([request.itl_ms for request in many])
        # Prompts end together: as many as fit into a step, on each engine.
        pack = waiting // WAITING
        return Timings(
            ttft=array_of([request.ttft_ms for request in single[1:]]),
            prefill=_means(gaps, pack * max(1, len(gaps) // (BLOCKS * pack))),
            alone=array_of([request.itl_ms for request in single[1:]]),
            batch=_means(itl, batch)[1:],
        )


class QuickFigures(Document):
    """What a quick calibration measured."""

    peak_prefill_throughput: float
    """Input tokens/s that a worker prefills, as llm-d's `peakPrefillThroughput`."""
    prompt_tokens: int
    """Input tokens of each prompt."""
    ttft_ms: float
    """Time to first token of a single request in ms."""
    step_ms: float
    """Time of a decode step with one request in ms."""
    batch: int
    """Decoding requests of an engine in the last phase."""
    batch_step_ms: float
    """Time of a decode step with so many requests in ms."""
    prefill_repeatability: float
    """Difference of the prefill throughput between both halves of its phase, as a share."""
    step_repeatability: float
    """The same of the time of a decode step with one request."""
    batch_step_repeatability: float
    """The same of the time of a decode step with many requests."""
    requests: int
    """Number of served requests."""
    seconds: float
    """Time that the measurement took, in seconds of real time."""
    warnings: tuple[str, ...]
    """Why the figures may not be those of the worker."""


@dataclass(frozen=True, kw_only=True)
class QuickRun:
    endpoint: Endpoint
    figures: QuickFigures
    phases: tuple[Phase, ...]
    """With the number of requests that were served."""
    served: tuple[Sequence[ServedRequest], ...]
    timings: Timings
    calibration: Calibration | None = None

    @property
    def requests(self) -> list[ServedRequest]:
        return [request for each in self.served for request in each]


def measure(endpoint: Endpoint, engines: Engines, progress: Progress) -> QuickRun:
    """BenchError if a response is wrong, or if the worker is too slow."""
    begun = time.monotonic()
    psutil.cpu_percent()
    client = LiveClient(
        url=f"{endpoint.url}/v1",
        model=endpoint.model,
        speed=endpoint.speed,
        itl_from=OUTPUT // 4,
    )

    def serve(phase: Phase, limit_s: float) -> list[ServedRequest]:
        ends, done = time.monotonic() + limit_s, list[ServedRequest]()
        size = phase.concurrency if phase.in_rounds else phase.count
        while len(done) < phase.count and (left_s := ends - time.monotonic()) > 0:
            salt, requests = secrets.token_hex(8), phase.requests[:size]
            sent = client.serve(requests, salt, concurrency=phase.concurrency, limit_s=left_s)
            done += asyncio.run(asyncio.wait_for(sent, left_s + LAST_S))
            if not phase.in_rounds:
                break
        return done

    try:
        progress("warming up", 0, 0)
        planned = phases(fitting_prompt(min(LONGEST, engines.chunk), serve), engines)
        served = []
        for number, (phase, limit_s) in enumerate(zip(planned, LIMITS_S, strict=True)):
            progress("sending requests of the quick calibration: phase", number, len(planned))
            served.append(serve(phase, limit_s))
    except LiveError as error:
        raise BenchError(str(error), place=endpoint.url, fix="Read the endpoint's log.") from None
    except TimeoutError:
        raise _too_slow(f"a response took over {LAST_S:g} s") from None
    warnings = _warnings([*chain(*served)], psutil.cpu_percent() / 100)
    return run_of(endpoint, planned, served, engines, time.monotonic() - begun, warnings)


def fitting_prompt(tokens: int, serve: Callable[[Phase, float], list[ServedRequest]]) -> int:
    """Input tokens that the endpoint accepts, at most ``tokens``. The requests are the warm-up."""
    while True:
        trial = Phase(input_tokens=tokens, output_tokens=OUTPUT, concurrency=1, count=2)
        try:
            serve(trial, TRIAL_S)
            return tokens
        except RejectedError:
            if tokens // 2 < SHORTEST:
                raise
            tokens //= 2


def run_of(
    endpoint: Endpoint,
    planned: Sequence[Phase],
    served: Sequence[Sequence[ServedRequest]],
    engines: Engines,
    seconds: float,
    warnings: Iterable[str] = (),
) -> QuickRun:
    """BenchError with too few requests."""
    timings = Timings.of(served, *(phase.concurrency for phase in planned[1:]))
    prompt = planned[1].input_tokens
    if min(len(timings.ttft), len(timings.prefill), len(timings.batch) + 1) < FEWEST:
        raise _too_slow(f"too few requests with up to {prompt:,} tokens were served")
    figures = QuickFigures(
        peak_prefill_throughput=prompt * 1000 / _median(timings.prefill) / engines.workers,
        prompt_tokens=prompt,
        ttft_ms=_median(timings.ttft),
        step_ms=_median(timings.alone),
        batch=BATCH,
        batch_step_ms=_median(timings.batch),
        prefill_repeatability=_halves(timings.prefill),
        step_repeatability=_halves(timings.alone),
        batch_step_repeatability=_halves(timings.batch),
        requests=sum(map(len, served)),
        seconds=seconds,
        warnings=tuple(warnings),
    )
    return QuickRun(
        endpoint=endpoint,
        figures=figures,
        phases=tuple(
            replace(phase, count=len(each)) for phase, each in zip(planned, served, strict=True)
        ),
        served=tuple(served),
        timings=timings,
    )


def _too_slow(reason: str) -> BenchError:
    message = f"the worker is too slow for a quick calibration: {reason}"
    fix = "Use --calibrate FILE with a workload."
    return BenchError(message, place="--calibrate quick", fix=fix)


def quick_fit(quick: QuickRun, deployment: Replayable, replays: Replays) -> Fit:
    """The factors with which a replay of the same requests has the same timings.

    BenchError if their intervals are too wide.
    """
    timings, waiting, batch = quick.timings, *(phase.concurrency for phase in quick.phases[1:])

    def replayed(factors: Factors) -> list[list[ServedRequest]]:
        scaled = corrected(deployment, factors)
        jobs = [
            Job(
                replayable=scaled,
                trace=as_trace(phase.requests),
                concurrency=phase.concurrency,
                sample_ms=1000.0,
            )
            for phase in quick.phases
        ]
        return [
            served_requests(factors.frontend_time.added_to(result)) for result in replays.run(jobs)
        ]

    factors = Factors()
    before = replayed(factors)
    predicted = Timings.of(before, waiting, batch)
    for _ in range(ITERATIONS):
        prefill = _median(timings.prefill) / _median(predicted.prefill)
        steps = [
            _median(timings.alone) / _median(predicted.alone),
            _median(timings.batch) / _median(predicted.batch),
        ]
        step = exp(sum(map(log, steps)) / len(steps))
        factors = Factors(
            prefill_speed=factors.prefill_speed / prefill, step_time=factors.step_time * step
        )
        predicted = Timings.of(replayed(factors), waiting, batch)
        if max(abs(log(prefill)), abs(log(step))) < SETTLED:
            break
    fixed_ms = max(0.0, _median(timings.ttft) - _median(predicted.ttft))
    factors = replace(factors, fixed_ttft_ms=fixed_ms)
    # Both batch sizes share a factor: how far they differ from it is part of its error.
    step_error = np.hypot(
        np.hypot(_error(timings.alone), _error(timings.batch)) / 2, log(steps[0] / steps[1]) / 2
    )
    errors = (_error(timings.prefill), float(step_error), _error(timings.ttft))
    intervals = intervals_of(factors, np.array([*errors[:2], errors[2] * _median(timings.ttft)]))
    require_certain(intervals, "Repeat the measurement without other load on the worker.")
    return Fit(
        factors=factors,
        intervals=intervals,
        requests=quick.figures.requests,
        before=latencies(before),
        after=latencies(replayed(factors)),
    )


def latencies(served: Sequence[Sequence[ServedRequest]]) -> Latencies:
    requests = [request for each in served for request in each]
    return Latencies(
        ttft=array_of([request.ttft_ms for request in requests]),
        itl=array_of([request.itl_ms for request in requests]),
    )


def _warnings(requests: Sequence[ServedRequest], cpu_share: float) -> Iterator[str]:
    if distortion := distortion_of(0.0, None, cpu_share):
        yield distorted(distortion)
    if cached := sum(request.cached_tokens for request in requests):
        yield f"the server reports that a prefix cache had {cached:,} input tokens"


def _means(values: Array, size: int) -> Array:
    """Of consecutive parts with as many values; the last ones are left out."""
    count = len(values) // size
    return np.asarray(values[: count * size].reshape(count, size).mean(axis=1))


def _halves(values: Array) -> float:
    first, second = np.array_split(values, 2)
    return abs(_median(first) / _median(second) - 1)


def _median(values: Array) -> float:
    return float(np.median(values))


def _error(values: Array) -> float:
    """Half of the 95% confidence interval of the logarithm of the median, whatever the stalls."""
    count, logs = len(values), np.log(values)
    scale = NORMAL * _median(np.abs(logs - _median(logs)))
    return T_95[min(count - 1, len(T_95)) - 1] * OF_MEDIAN * scale / float(count**0.5)
