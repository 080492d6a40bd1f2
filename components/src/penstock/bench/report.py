"""The figures of a run as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from penstock.bench.calibration_report import calibration_lines
from penstock.bench.documents import SCHEMA_VERSION, NamedWorkload, RunDocument
from penstock.bench.measurement import Failures, Measurement, Percentiles
from penstock.bench.prediction import Prediction
from penstock.bench.request_log import RequestLog
from penstock.graph.slo import Slo
from penstock.simulate.calibration import Calibration
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.report import aligned, arrival_of
from penstock.workload.load import LoadedWorkload

HEADINGS = ("ms", "p50", "p90", "p99")
ROWS = {
    "TTFT": "ttft_ms",
    "ITL": "itl_ms",
    "gap between chunks": "chunk_gap_ms",
    "end-to-end": "e2e_ms",
}
AFTER_REASONING = {"first output after reasoning": "first_output_ms"}
SIMILAR = 0.02  # difference of two token counts that is not reported


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One run of a workload against one endpoint."""

    url: str
    model: str
    workload: LoadedWorkload
    slo: Slo
    attain: float
    """Share of requests that must meet the SLO."""
    seed: int
    speed: float = 1.0
    """Simulation speed of the target; other than 1, all times are simulated."""
    engine_is_substitute: bool | None = None
    """Mockers served instead of an engine; None if that is not known."""
    client: str
    """The load generator and its version."""
    measurement: Measurement
    prediction: Prediction | None = None
    calibration: Calibration | None = None
    interrupted: str = ""
    """What ended the run early; empty if nothing did."""
    log: RequestLog | None = None
    """Its requests; None if only the figures are known."""

    @property
    def meets_slo(self) -> bool | None:
        """None without an SLO."""
        share = self.measurement.goodput
        return None if share is None else share >= self.attain


def lines(bench: Bench) -> Iterator[str]:
    found = bench.measurement
    yield f"{bench.workload.name} ({arrival_of(bench.workload)}), {bench.model} at {bench.url}"
    if bench.engine_is_substitute:
        yield on_mockers(bench.model)
    if bench.interrupted:
        yield f"incomplete: {bench.interrupted}"
    if bench.speed != 1.0:
        yield simulated_time(bench.speed)
    if found.unsent:
        yield f"{found.unsent} requests were not sent, or have no record"
    if bench.measurement.goodput is not None:
        yield slo_verdict(bench)
    yield from aligned([HEADINGS, *_rows(found)])
    if bench.prediction:
        yield from _predicted(found, bench.prediction)
    if bench.calibration:
        yield from calibration_lines(bench.calibration)
    yield from _rates(found)
    if found.in_one_piece:
        yield f"without ITL: {found.in_one_piece} responses, all of whose tokens came at once"
    if found.reasoning:
        yield f"reasoning: {_reasoning(found)}"
    if line := failures_line(found.failures):
        yield line + (
            "; no p99, because more than 1% failed" if found.failures.share > MAX_REFUSED else ""
        )
    yield from limits_of(found)


def _reasoning(found: Measurement) -> str:
    """Of the responses in the measured window."""
    counts = f"{found.reasoning} of {found.counted} responses began with reasoning"
    if not found.reasoning_only:
        return counts
    return f"{counts}; {found.reasoning_only} had no other output"


def simulated_time(speed: float) -> str:
    return f"all figures are in simulated time, at a simulation speed of {speed:g}"


def on_mockers(model: str) -> str:
    """The caution about figures of mockers."""
    return f"no engine ran: mockers simulated it, so the figures are not those of {model}"


def limits_of(found: Measurement) -> Iterator[str]:
    """Why the latencies may not be those of the endpoint in a steady state."""
    if found.distortion:
        yield f"this machine may have distorted the latencies: {found.distortion}"
    if found.steadiness is not None and not found.steadiness.is_steady:
        yield f"not steady: {found.steadiness.reason}"


def slo_verdict(bench: Bench) -> str:
    """Of a run with an SLO and with counted requests."""
    verdict = "met" if bench.meets_slo else "missed"
    by = " by mockers" if bench.engine_is_substitute else ""
    share = f"{bench.measurement.goodput or 0.0:.1%} of requests within {bench.slo}"
    return f"SLO {verdict}{by}: {share} ({bench.attain:.0%} needed)"


def _rows(found: Measurement) -> Iterator[tuple[str, ...]]:
    for name, key in {**ROWS, **(AFTER_REASONING if found.reasoning else {})}.items():
        values: Percentiles | None = getattr(found, key)
        shown = (None,) * 3 if values is None else (values.p50, values.p90, values.p99)
        yield (name, *("-" if v is None else f"{v:.1f}" for v in shown))


def _predicted(found: Measurement, prediction: Prediction) -> Iterator[str]:
    yield f"predicted by simulate for {prediction.graph} (measured compared with predicted):"
    rows = []
    for name, key in ROWS.items():
        if hasattr(prediction, key):
            measured, expected = getattr(found, key), getattr(prediction, key)
            rows.append((name, *(_compared(measured, expected, one) for one in HEADINGS[1:])))
    yield from aligned([HEADINGS, *rows])
    if prediction.too_long:
        rejected = f"{prediction.too_long} of {prediction.requests} requests"
        yield f"the prediction is without {rejected}, which are too long for this graph"


def _compared(measured: Percentiles | None, predicted: Percentiles | None, percentile: str) -> str:
    value = predicted and getattr(predicted, percentile)
    actual = measured and getattr(measured, percentile)
    if not value:
        return "-"
    # + 0.0 turns a negative zero into a positive one.
    return f"{value:.1f}" + (f" ({round(actual / value - 1, 2) + 0.0:+.0%})" if actual else "")


def _rates(found: Measurement) -> Iterator[str]:
    user = "" if found.user_rate is None else f", {found.user_rate:.1f} tokens/s per user (median)"
    yield f"output: {found.output_rate:.1f} tokens/s, {found.request_rate:.2f} requests/s{user}"
    if found.input_ratio is not None and abs(found.input_ratio - 1) > SIMILAR:
        share = f"{found.input_ratio:.0%} of the workload's"
        yield f"input tokens counted by the server: {share}"
    hits = f"{found.prefix_hit_rate:.0%} of the input tokens"
    yield f"prefix-cache hit rate: {hits} (reported by the server)"
    yield f"measured window: {found.window_s:.1f} s, {found.counted} requests"


def failures_line(found: Failures) -> str:
    """Empty if no request failed."""
    if not found.total:
        return ""
    reasons = ", ".join(f"{count} × {reason}" for reason, count in found.reasons.items())
    return f"failed: {found.total} of {found.sent} requests ({reasons})"


def as_json(bench: Bench) -> str:
    return document(bench).as_json()


def document(bench: Bench) -> RunDocument:
    return RunDocument(kind="run", **run_fields(bench))


def run_fields(bench: Bench) -> dict[str, Any]:
    """Those of a `RunDocument`, without its kind."""
    found = bench.measurement
    steady = found.steadiness
    return {
        "schema_version": SCHEMA_VERSION,
        "url": bench.url,
        "model": bench.model,
        "client": bench.client,
        "seed": bench.seed,
        "speed": bench.speed,
        "engine_is_substitute": bench.engine_is_substitute,
        "workload": NamedWorkload.of(bench.workload.name, bench.workload.workload),
        "slo": bench.slo,
        "attain": bench.attain,
        "meets_slo": bench.meets_slo,
        "prediction": bench.prediction,
        "calibration": bench.calibration,
        "interrupted": bench.interrupted or None,
        "distortion": found.distortion or None,
        **{name: getattr(found, name) for name in Measurement.__dataclass_fields__},
        "steadiness": steady and asdict(steady) | {"is_steady": steady.is_steady},
    }


def workload_json(loaded: LoadedWorkload) -> dict[str, Any]:
    return {"name": loaded.name, **loaded.workload.model_dump(exclude_none=True)}
