"""The report of one run, and what the reports of several runs share with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

from penstock.bench.measurement import (
    Bench,
    Failures,
    Measurement,
    Percentiles,
    Predicted,
    Prediction,
    RequestLog,
)
from penstock.reports.charts import bin_width, binned, over_time, percentile_curves, slo_limit
from penstock.reports.model import (
    Band,
    Chart,
    Figure,
    Figures,
    Mark,
    Part,
    Report,
    Section,
    Series,
    State,
    Table,
    Verdict,
    notes_of,
)
from penstock.simulate.calibration import Calibration
from penstock.simulate.charts import latency_charts
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.report import NO_SLO, arrival_of
from penstock.simulate.window import ServedRequest, tokens_between
from penstock.text.numbers import limit_text

SHARES = (0.5, 0.99)  # of the latencies over time
PERCENTILES = ("p50", "p90", "p99")
HEADINGS = ("latency (ms)", *PERCENTILES)
ROWS = {
    "TTFT": "ttft_ms",
    "ITL": "itl_ms",
    "gap between chunks": "chunk_gap_ms",
    "end-to-end": "e2e_ms",
}
AFTER_REASONING = {"first output after reasoning": "first_output_ms"}
SIMILAR = 0.02  # difference of two token counts that is not reported
FEW = 100  # requests, below which the p99 is the maximum


def report_of(bench: Bench, predicted: Predicted | None = None) -> Report:
    """``predicted``: with the requests of the prediction, for the charts."""
    endpoint = bench.endpoint
    counted = {kind_of(is_substitute=endpoint.engine_is_substitute): bench.log.counted}
    if predicted:
        counted["predicted by simulate"] = list(predicted.requests)
    prediction = [*_prediction(bench.measurement, bench.prediction)] if bench.prediction else []
    calibration = [*calibration_parts(bench.calibration)] if bench.calibration else []
    return Report(
        kind="Benchmark",
        title=f"{bench.workload.name} ({arrival_of(bench.workload)}), "
        f"{endpoint.model} at {endpoint.url}",
        subtitle=kind_of(is_substitute=endpoint.engine_is_substitute),
        verdicts=list(verdicts(bench)),
        sections=[
            Section("Over time", time_charts(bench)),
            Section(
                "Latency", [_latency_table(bench), *latency_charts(counted, bench.slo), *prediction]
            ),
            Section("Calibration", calibration),
            Section("", [Figures(list(_figures(bench.measurement)))]),
            Section("Notes", notes_of(_notes(bench))),
        ],
    )


def kind_of(*, is_substitute: bool | None) -> str:
    """Of the figures of a report."""
    return "simulated by mockers" if is_substitute else "measured"


def on_mockers(model: str) -> str:
    """The caution about figures of mockers."""
    return f"no engine ran: mockers simulated it, so the figures are not those of {model}"


def verdicts(bench: Bench) -> Iterator[Verdict]:
    measured = bench.measurement
    if bench.endpoint.engine_is_substitute:
        yield Verdict(State.INCOMPLETE, on_mockers(bench.endpoint.model))
    if bench.interrupted:
        yield Verdict(State.INCOMPLETE, f"incomplete: {bench.interrupted}")
    if not measured.counted:
        reasons = ", ".join(measured.failures.reasons) or "no request was sent"
        yield Verdict(State.MISSED, f"no request was served: {reasons}")
    elif measured.goodput is None:
        yield Verdict(State.NONE, NO_SLO)
    else:
        outcome = State.MET if bench.meets_slo else State.MISSED
        by = " by mockers" if bench.endpoint.engine_is_substitute else ""
        share = f"{measured.goodput:.1%} of requests within {bench.slo}"
        text = f"SLO {outcome}{by}: {share} ({bench.attain:.0%} needed)"
        yield Verdict(State.NONE if bench.endpoint.engine_is_substitute else outcome, text)


def _latency_table(bench: Bench) -> Table:
    """With the SLO, if there is one."""
    measured, slo = bench.measurement, bench.slo
    limits = {"ttft_ms": slo.ttft_ms, "itl_ms": slo.itl_ms, "e2e_ms": slo.e2e_ms}
    rows = []
    for name, key in {**ROWS, **(AFTER_REASONING if measured.reasoning else {})}.items():
        values: Percentiles | None = getattr(measured, key)
        cells = (
            [None] * 3
            if values is None
            else [getattr(values, percentile) for percentile in PERCENTILES]
        )
        texts = ["-" if value is None else f"{value:,.1f}" for value in cells]
        limit = limits.get(key)
        texts += ["-" if limit is None else limit_text(limit)] * bool(slo)
        rows.append([name, *texts])
    return Table([*HEADINGS, *["SLO"] * bool(slo)], rows)


def _prediction(measured: Measurement, prediction: Prediction) -> Iterator[Part]:
    yield f"predicted by simulate for {prediction.graph} (measured compared with predicted):"
    rows = []
    for name, key in ROWS.items():
        if hasattr(prediction, key):
            pair = getattr(measured, key), getattr(prediction, key)
            rows.append([name, *(_compared(*pair, percentile) for percentile in PERCENTILES)])
    yield Table(HEADINGS, rows)
    if prediction.too_long:
        rejected = f"{prediction.too_long} of {prediction.requests} requests"
        yield f"the prediction is without {rejected}, which are too long for this graph"


def _compared(measured: Percentiles | None, predicted: Percentiles | None, percentile: str) -> str:
    expected = predicted and getattr(predicted, percentile)
    actual = measured and getattr(measured, percentile)
    if not expected:
        return "-"
    # + 0.0 turns a negative zero into a positive one.
    return f"{expected:.1f}" + (
        f" ({round(actual / expected - 1, 2) + 0.0:+.0%})" if actual else ""
    )


def calibration_parts(calibration: Calibration) -> Iterator[Part]:
    """The correction factors, and how well the simulation agrees with the run with them."""
    where = ", ".join(calibration.key)
    yield f"calibration of {where}, from {calibration.requests} requests (95% interval):"
    low, high = calibration.fixed_ttft_interval_ms
    factors = {
        "prefill speed": (calibration.prefill_speed, calibration.prefill_speed_interval),
        "step time": (calibration.step_time, calibration.step_time_interval),
    }
    rows = [
        (name, f"× {factor:.3f}", f"({ends[0]:.3f} to {ends[1]:.3f})")
        for name, (factor, ends) in factors.items()
    ]
    rows.append(
        ("fixed TTFT", f"{calibration.fixed_ttft_ms:.1f} ms", f"({low:.1f} to {high:.1f} ms)")
    )
    yield Table(("factor", "value", "95% interval"), rows)
    yield "measured compared with predicted: without → with these factors:"
    before, after = calibration.errors_before, calibration.errors_after
    changes = [
        [latency.upper()]
        + [
            f"{getattr(before, key):+.0%} → {getattr(after, key):+.0%}"
            for key in (f"{latency}_p50", f"{latency}_p90")
        ]
        for latency in ("ttft", "itl")
    ]
    yield Table(("latency", "p50", "p90"), changes)
    yield from (f"warning: {warning}" for warning in calibration.warnings)


def _figures(measured: Measurement) -> Iterator[Figure]:
    yield Figure("output", f"{measured.output_rate:,.1f} tokens/s")
    yield Figure("served", f"{measured.request_rate:.2f} requests/s")
    if measured.user_rate is not None:
        yield Figure("per user (median)", f"{measured.user_rate:.1f} tokens/s")
    if measured.input_ratio is not None and abs(measured.input_ratio - 1) > SIMILAR:
        share = f"{measured.input_ratio:.0%} of the workload's"
        yield Figure("input tokens counted by the server", share)
    hits = f"{measured.prefix_hit_rate:.0%} of the input tokens"
    yield Figure("prefix-cache hit rate", hits, "reported by the server")
    failures = measured.failures
    failed = f"{failures.total} of {failures.sent} requests"
    yield Figure("failed", failed, _reasons(failures))
    yield Figure("measured window", f"{measured.window_s:.1f} s, {measured.counted} requests")


def _notes(bench: Bench) -> Iterator[str]:
    measured = bench.measurement
    if bench.endpoint.speed != 1.0:
        yield simulated_time(bench.endpoint.speed)
    if measured.unsent:
        yield f"{measured.unsent} requests were not sent, or have no record"
    if measured.failures.share > MAX_REFUSED:
        yield "no p99, because more than 1% of the requests failed"
    if measured.in_one_piece:
        yield f"without ITL: {measured.in_one_piece} responses, all of whose tokens came at once"
    if measured.reasoning:
        counts = f"{measured.reasoning} of {measured.counted} responses began with reasoning"
        only = f"; {measured.reasoning_only} had no other output"
        yield f"reasoning: {counts}{only if measured.reasoning_only else ''}"
    if 0 < measured.counted < FEW:
        yield f"only {measured.counted} requests were counted: the p99 is the maximum"
    yield from limits_of(measured)


def simulated_time(speed: float) -> str:
    return f"all figures are in simulated time, at a simulation speed of {speed:g}"


def limits_of(measured: Measurement) -> Iterator[str]:
    """Why the latencies may not be those of the endpoint in a steady state."""
    if measured.distorted_by:
        yield distorted(measured.distorted_by)
    if measured.steadiness is not None and not measured.steadiness.is_steady:
        yield f"not steady: {measured.steadiness.reason}"


def distorted(reason: str) -> str:
    return f"this machine may have distorted the latencies: {reason}"


def _reasons(failures: Failures) -> str:
    return ", ".join(f"{count} × {reason}" for reason, count in failures.reasons.items())


def failures_line(failures: Failures) -> str:
    """Empty if no request failed."""
    if not failures.total:
        return ""
    return f"failed: {failures.total} of {failures.sent} requests ({_reasons(failures)})"


def time_charts(bench: Bench) -> list[Chart]:
    """Latencies, requests, tokens and errors, each on its own axis. Empty without requests."""
    records = bench.log.records
    return list(_TimeCharts(bench).charts()) if records.served or records.failed else []


@dataclass(frozen=True)
class _TimeCharts:
    """Times are seconds since the start of the run, in bins of equal width."""

    bench: Bench

    @property
    def log(self) -> RequestLog:
        return self.bench.log

    @cached_property
    def served(self) -> Sequence[ServedRequest]:
        return list(self.log.records.served.values())

    @cached_property
    def end_s(self) -> float:
        failed = (failed.sent_ms / 1000 for failed in self.log.records.failed)
        return max([*failed, *(request.ended_ms / 1000 for request in self.served)])

    @cached_property
    def width(self) -> float:
        return bin_width(self.end_s)

    @cached_property
    def bins(self) -> int:
        return max(1, ceil(self.end_s / self.width))

    @property
    def _frame(self) -> dict[str, Any]:
        """The time range of all charts, and the measured window, which they shade."""
        begin, end = (ms / 1000 for ms in self.log.window)
        window = [Band(begin=begin, end=end)] if end > begin else []
        return {"bands": window, "end_s": self.width * self.bins}

    def charts(self) -> Iterator[Chart]:
        slo = self.bench.slo
        ttft: list[float | None] = [request.ttft_ms for request in self.served]
        yield from self._latency("TTFT", ttft, slo.ttft_ms)
        yield from self._latency("ITL", [request.itl_ms for request in self.served], slo.itl_ms)
        sent = [request.arrived_ms / 1000 for request in self.served]
        sent += [failed.sent_ms / 1000 for failed in self.log.records.failed]
        completed = [request.ended_ms / 1000 for request in self.served]
        rates = [self._rate("sent", sent), self._rate("completed", completed)]
        yield over_time("Requests", "requests/s", rates, **self._frame)
        yield over_time("Output tokens", "tokens/s", [self._tokens()], **self._frame)
        if self.log.records.failed:
            yield self._errors()

    def _latency(
        self, name: str, values: Sequence[float | None], limit_ms: float | None
    ) -> Iterator[Chart]:
        """By the time at which a request was sent. Nothing if no request has the latency."""
        known = [
            (request.arrived_ms / 1000, value)
            for request, value in zip(self.served, values, strict=True)
            if value is not None
        ]
        if known:
            times, latencies = zip(*known, strict=True)
            curves = percentile_curves(times, latencies, SHARES, self.width, self.bins)
            yield over_time(
                f"{name} by the time sent",
                "ms",
                curves,
                name=name,
                limits=slo_limit(name, limit_ms),
                **self._frame,
            )

    def _rate(self, name: str, times: Sequence[float]) -> Series:
        counts = binned(times, times, self.width, self.bins)
        return self._steps(name, [len(count) / self.width for count in counts])

    def _steps(self, name: str, values: Sequence[float]) -> Series:
        begins = [number * self.width for number in range(self.bins)]
        return Series(name=name, x=begins, y=values, mark=Mark.STEPS)

    def _tokens(self) -> Series:
        begins = (1000 * self.width * number for number in range(self.bins))
        return self._steps("output tokens", [self._tokens_from(begin) for begin in begins])

    def _tokens_from(self, begin_ms: float) -> float:
        """Output tokens/s of the bin that begins then."""
        end_ms = begin_ms + self.width * 1000
        counts = (
            tokens_between(request, begin_ms, end_ms)
            for request in self.served
            if request.first_ms <= end_ms and request.ended_ms >= begin_ms
        )
        return sum(counts) / self.width

    def _errors(self) -> Chart:
        by_reason: dict[str, list[float]] = {}
        for failed in self.log.records.failed:
            by_reason.setdefault(failed.reason, []).append(failed.sent_ms / 1000)
        middles = [(number + 0.5) * self.width for number in range(self.bins)]
        bars = [
            Series(
                name=reason,
                x=middles,
                y=[len(count) for count in binned(times, times, self.width, self.bins)],
                mark=Mark.STACK,
            )
            for reason, times in by_reason.items()
        ]
        title = f"Failed requests by the time sent (per {limit_text(self.width)} s)"
        return over_time(title, "requests", bars, **self._frame)
