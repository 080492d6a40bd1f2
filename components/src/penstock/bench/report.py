"""The report of one run, and what the reports of several runs share with it."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.bench.charts import time_charts
from penstock.bench.measurement import Failures, Measurement, Percentiles
from penstock.bench.model import Bench
from penstock.bench.prediction import Predicted, Prediction
from penstock.reports.model import (
    Figure,
    Figures,
    Part,
    Report,
    Section,
    State,
    Table,
    Verdict,
    notes_of,
)
from penstock.simulate.calibration import Calibration
from penstock.simulate.charts import latency_charts
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.report import NO_SLO, arrival_of
from penstock.simulate.window import ServedRequest
from penstock.text.numbers import limit_text

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
    counted = {kind_of(is_substitute=bench.engine_is_substitute): counted_requests(bench)}
    if predicted:
        counted["predicted by simulate"] = list(predicted.requests)
    prediction = [*_prediction(bench.measurement, bench.prediction)] if bench.prediction else []
    calibration = [*_calibration(bench.calibration)] if bench.calibration else []
    return Report(
        kind="Benchmark",
        title=f"{bench.workload.name} ({arrival_of(bench.workload)}), {bench.model} at {bench.url}",
        subtitle=kind_of(is_substitute=bench.engine_is_substitute),
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
    if bench.engine_is_substitute:
        yield Verdict(State.INCOMPLETE, on_mockers(bench.model))
    if bench.interrupted:
        yield Verdict(State.INCOMPLETE, f"incomplete: {bench.interrupted}")
    if not measured.counted:
        reasons = ", ".join(measured.failures.reasons) or "no request was sent"
        yield Verdict(State.MISSED, f"no request was served: {reasons}")
    elif measured.goodput is None:
        yield Verdict(State.NONE, NO_SLO)
    else:
        outcome = State.MET if bench.meets_slo else State.MISSED
        by = " by mockers" if bench.engine_is_substitute else ""
        share = f"{measured.goodput:.1%} of requests within {bench.slo}"
        text = f"SLO {outcome}{by}: {share} ({bench.attain:.0%} needed)"
        yield Verdict(State.NONE if bench.engine_is_substitute else outcome, text)


def counted_requests(bench: Bench) -> list[ServedRequest]:
    """Those that the percentiles describe."""
    return [] if bench.log is None else bench.log.counted


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


def _calibration(calibration: Calibration) -> Iterator[Part]:
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
    if bench.speed != 1.0:
        yield simulated_time(bench.speed)
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
    if measured.distortion:
        yield distorted(measured.distortion)
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
