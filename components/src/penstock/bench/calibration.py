"""The calibration of a run: its requests, replayed until the predictions fit the measurement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version

import numpy as np

from penstock.bench import aiperf
from penstock.bench.calibrate import Array, Fit, Latencies, array_of, fit
from penstock.bench.measurement import Bench
from penstock.bench.quick import QuickRun, latencies, quick_fit
from penstock.bench.report import limits_of
from penstock.errors import BenchError
from penstock.simulate.calibration import (
    Calibration,
    Errors,
    Factors,
    Load,
    corrected,
    group_of,
)
from penstock.simulate.metrics import MAX_REFUSED, served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.study import Study
from penstock.simulate.window import ServedRequest, percentile
from penstock.workload import Request

WARM_UP = 0.1  # share of the requests, which are served while the engines warm up
OTHER_HITS = 0.1  # difference of the prefix-cache hit rates, from which the factors contain it
DIGITS = 4  # of the numbers in the file
Value = Callable[[ServedRequest], float | None]
Kind = tuple[float, int, int]  # arrival, input tokens and output tokens


def calibration_of(
    bench: Bench, deployment: Replayable, replays: Replays, command: str
) -> Calibration:
    """BenchError if the run does not show the factors, SimulationError if the graph cannot be
    replayed. ``command``: of the run."""
    failed = bench.measurement.failures.share
    if failed > MAX_REFUSED:
        message = (
            f"{failed:.1%} of the requests failed; calibration permits at most {MAX_REFUSED:.0%}"
        )
        fix = "Correct the cause of the failures, or lower the load."
        raise BenchError(message, place="--calibrate", fix=fix)
    run = _Run(bench=bench, deployment=deployment, replays=replays)
    fitted = fit(run.measured, run.uncached, run.predict)
    return entry_of(
        deployment,
        fitted,
        run.measured,
        load=_load(
            bench.workload.name,
            bench.measurement.request_rate,
            [request for _, request in run.pairs],
            run.uncached,
        ),
        warnings=_warnings(run),
        command=command,
    )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The requests of a run after its warm-up, in order of arrival, and their replays."""

    bench: Bench
    deployment: Replayable
    replays: Replays

    @property
    def served(self) -> Sequence[tuple[Request, ServedRequest]]:
        return self.bench.log.served

    @cached_property
    def pairs(self) -> Sequence[tuple[Request, ServedRequest]]:
        return self.served[int(WARM_UP * len(self.served)) :]

    @cached_property
    def measured(self) -> Latencies:
        done = [served for _, served in self.pairs]
        return Latencies(
            ttft=array_of([request.ttft_ms for request in done]),
            itl=array_of([request.itl_ms for request in done]),
        )

    @cached_property
    def uncached(self) -> Array:
        """Input tokens of each request that no prefix cache has, as the replay predicts them."""
        return self._aligned(
            self._base, lambda request: request.input_tokens - request.cached_tokens
        )

    @cached_property
    def predicted_hits(self) -> float:
        hits = sum(request.cached_tokens for request in self._base)
        return hits / max(1, sum(request.input_tokens for request in self._base))

    @cached_property
    def _base(self) -> list[ServedRequest]:
        (base,) = self._replayed([Factors()])
        return base

    def predict(self, factors: Sequence[Factors]) -> list[Latencies]:
        return [
            Latencies(
                ttft=self._aligned(each, lambda served: served.ttft_ms),
                itl=self._aligned(each, lambda served: served.itl_ms),
            )
            for each in self._replayed(factors)
        ]

    def _replayed(self, factors: Sequence[Factors]) -> list[list[ServedRequest]]:
        bench = self.bench
        study = Study(workload=bench.workload, replays=self.replays, seeds=1, first_seed=bench.seed)
        deployments = [corrected(self.deployment, factor) for factor in factors]
        return [served_requests(row.results[0]) for row in study.rows(deployments, None)]

    def _aligned(self, replayed: Sequence[ServedRequest], value: Value) -> Array:
        """The value of the replayed request that belongs to each measured one; NaN if there is
        none. A replay's rows have no names: those of a kind are in order of arrival."""
        rows = defaultdict[Kind, list[ServedRequest]](list)
        for each in replayed:
            rows[self._kind(each.arrived_ms, each.input_tokens, each.tokens)].append(each)
        aligned = []
        for kind, place in self._places:
            row = rows[kind]
            aligned.append(value(row[place]) if place < len(row) else None)
        return array_of(aligned)

    @cached_property
    def _places(self) -> Sequence[tuple[Kind, int]]:
        """The kind of each measured request, and its place among those of its kind, of which some
        are before the warm-up's end."""
        seen = Counter[Kind]()
        places = []
        for request, _ in self.served:
            kind = self._kind(request.at_ms, request.input_tokens, request.output_tokens)
            places.append((kind, seen[kind]))
            seen[kind] += 1
        return places[len(places) - len(self.pairs) :]

    def _kind(self, at_ms: float | None, input_tokens: int, output_tokens: int) -> Kind:
        """Independent requests arrive in both at the times of the workload."""
        workload = self.bench.workload.workload
        is_timed = not workload.concurrency and workload.conversation is None
        at = round(at_ms) if is_timed and workload.trace is None and at_ms is not None else 0
        return at, input_tokens, output_tokens


def quick_calibration_of(
    quick: QuickRun, deployment: Replayable, replays: Replays, command: str
) -> Calibration:
    """BenchError if the measurement is too uncertain."""
    requests, figures = quick.requests, quick.figures
    calibration = entry_of(
        deployment,
        quick_fit(quick, deployment, replays),
        latencies(quick.served),
        load=_load(
            "the quick calibration",
            len(requests) / (figures.seconds * quick.endpoint.speed),
            requests,
            array_of([request.input_tokens for request in requests]),
        ),
        warnings=figures.warnings,
        command=command,
    )
    throughput = _short(figures.peak_prefill_throughput)
    return calibration.model_copy(update={"peak_prefill_throughput": throughput})


def entry_of(
    deployment: Replayable,
    fitted: Fit,
    measured: Latencies,
    *,
    load: Load,
    warnings: Iterable[str],
    command: str,
) -> Calibration:
    model, gpu, engine = group_of(deployment)
    speed, step, fixed = fitted.intervals
    return Calibration(
        model=model,
        gpu=gpu,
        engine=engine,
        prefill_speed=_short(fitted.factors.prefill_speed),
        step_time=_short(fitted.factors.step_time),
        fixed_ttft_ms=_short(fitted.factors.fixed_ttft_ms),
        requests=fitted.requests,
        prefill_speed_interval=_pair(*speed),
        step_time_interval=_pair(*step),
        fixed_ttft_interval_ms=_pair(*fixed),
        errors_before=_errors(measured, fitted.before),
        errors_after=_errors(measured, fitted.after),
        load=load,
        shape=deployment.shape,
        measured_at=f"{datetime.now(UTC):%Y-%m-%d}",
        versions={"penstock": version("penstock"), "client": aiperf.VERSION},
        command=command,
        warnings=tuple(warnings),
    )


def _errors(measured: Latencies, predicted: Latencies) -> Errors:
    def error(name: str, share: float) -> float:
        pairs = np.array([getattr(measured, name), getattr(predicted, name)])
        ours, theirs = pairs[:, np.isfinite(pairs).all(axis=0)]
        return round(percentile(list(ours), share) / percentile(list(theirs), share) - 1, DIGITS)

    return Errors(
        ttft_p50=error("ttft", 0.5),
        ttft_p90=error("ttft", 0.9),
        itl_p50=error("itl", 0.5),
        itl_p90=error("itl", 0.9),
    )


def _load(name: str, rate: float, requests: Sequence[ServedRequest], uncached: Array) -> Load:
    e2e_s = float(np.mean([request.e2e_ms for request in requests])) / 1000
    uncached = uncached[np.isfinite(uncached)]
    outputs = [request.tokens for request in requests]
    return Load(
        workload=name,
        request_rate=_short(rate),
        concurrency=_short(rate * e2e_s),
        uncached_input_tokens=_pair(*np.quantile(uncached, (0.1, 0.9)).round()),
        output_tokens=_pair(*np.quantile(outputs, (0.1, 0.9)).round()),
    )


def _warnings(run: _Run) -> Iterator[str]:
    measurement = run.bench.measurement
    yield from limits_of(measurement)
    hits, predicted = measurement.prefix_hit_rate, run.predicted_hits
    if abs(hits - predicted) > OTHER_HITS:
        yield (
            f"the server reports {hits:.0%} prefix-cache hits and the replay has {predicted:.0%}, "
            "so the factors contain this difference"
        )


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def _pair(low: float, high: float) -> tuple[float, float]:
    return _short(low), _short(high)
