"""The HTML report of one run of `penstock bench`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.bench.measurement import Percentiles
from penstock.bench.prediction import Predicted
from penstock.bench.report import (
    ROWS,
    Bench,
    failures_line,
    limits_of,
    on_mockers,
    simulated_time,
    slo_verdict,
)
from penstock.bench.time_charts import time_charts
from penstock.graph.slo import Slo
from penstock.reports.charts import Chart, distribution
from penstock.reports.page import (
    Notes,
    Part,
    Report,
    Section,
    State,
    Table,
    Tile,
    Verdict,
    write_report,
)
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.report import arrival_of
from penstock.simulate.window import ServedRequest
from penstock.text.numbers import limit_text

PERCENTILES = ("p50", "p90", "p99")
FEW = 100  # requests, below which the p99 is the maximum


def write_page(
    path: Path, bench: Bench, predicted: Predicted | None, provenance: Sequence[tuple[str, str]]
) -> None:
    """InputError if the file cannot be written."""
    write_report(path, report_of(bench, predicted, provenance))


def report_of(
    bench: Bench, predicted: Predicted | None, provenance: Sequence[tuple[str, str]]
) -> Report:
    return Report(
        title=f"Benchmark of {bench.model}",
        subtitle=f"{bench.url} · {bench.workload.name} ({arrival_of(bench.workload)}) · "
        f"{kind_of(is_substitute=bench.engine_is_substitute)}",
        verdicts=list(verdicts(bench)),
        tiles=list(tiles(bench)),
        sections=[
            Section(title="Latency", parts=list(_latency(bench, predicted))),
            Section(title="Over time", parts=time_charts(bench)),
            Section(title="Notes", parts=[Notes(lines=found)] if (found := _notes(bench)) else []),
        ],
        provenance=provenance,
    )


def kind_of(*, is_substitute: bool | None) -> str:
    """Of the figures of a report."""
    return "simulated by mockers" if is_substitute else "measured"


def mocker_verdict(model: str) -> Verdict:
    text = on_mockers(model)
    return Verdict(state=State.INCOMPLETE, text=text[0].upper() + text[1:])


def verdicts(bench: Bench) -> Iterator[Verdict]:
    found = bench.measurement
    if bench.engine_is_substitute:
        yield mocker_verdict(bench.model)
    if bench.interrupted:
        yield Verdict(state=State.INCOMPLETE, text=f"The run is incomplete: {bench.interrupted}")
    if not found.counted:
        reasons = ", ".join(found.failures.reasons) or "no request was sent"
        yield Verdict(state=State.MISSED, text=f"No request was served: {reasons}")
    elif found.goodput is None:
        yield Verdict(state=State.NONE, text="No SLO: name one with --ttft, --itl or --e2e")
    else:
        outcome = State.MET if bench.meets_slo else State.MISSED
        state = State.NONE if bench.engine_is_substitute else outcome
        yield Verdict(state=state, text=slo_verdict(bench))


def tiles(bench: Bench) -> Iterator[Tile]:
    found, slo = bench.measurement, bench.slo
    if found.goodput is not None:
        needed = f"{bench.attain:.0%} needed"
        yield Tile(name="Requests within the SLO", value=f"{found.goodput:.1%}", note=needed)
    yield _latency_tile("TTFT p50 / p99", found.ttft_ms, slo.ttft_ms, 0)
    yield _latency_tile("ITL p50 / p99", found.itl_ms, slo.itl_ms, 1)
    yield _latency_tile("End-to-end p50 / p99", found.e2e_ms, slo.e2e_ms, 0)
    yield Tile(name="Output", value=f"{found.output_rate:,.0f} tokens/s")
    user = "-" if found.user_rate is None else f"{found.user_rate:.1f} tokens/s"
    yield Tile(name="Per user (median)", value=user)
    yield Tile(name="Served", value=f"{found.request_rate:.2f} requests/s")
    hits = f"{found.prefix_hit_rate:.0%}"
    yield Tile(name="Prefix-cache hit rate", value=hits, note="of input tokens, by the server")
    failed = found.failures
    yield Tile(name="Failed", value=f"{failed.total} of {failed.sent}", note="requests sent")
    window = f"{found.window_s:.1f} s"
    yield Tile(name="Measured window", value=window, note=f"{found.counted} requests counted")


def _latency_tile(
    name: str, values: Percentiles | None, limit_ms: float | None, decimals: int
) -> Tile:
    note = f"SLO: ≤ {limit_text(limit_ms)} ms" if limit_ms is not None else ""
    if values is None:
        return Tile(name=name, value="-", note=note)
    p99 = "-" if values.p99 is None else f"{values.p99:,.{decimals}f}"
    return Tile(name=name, value=f"{values.p50:,.{decimals}f} / {p99} ms", note=note)


def counted_requests(bench: Bench) -> list[ServedRequest]:
    """Those that the percentiles describe."""
    if bench.log is None:
        return []
    return bench.log.counted


def _latency(bench: Bench, predicted: Predicted | None) -> Iterator[Part]:
    samples = {kind_of(is_substitute=bench.engine_is_substitute): counted_requests(bench)}
    if predicted:
        samples["predicted by simulate"] = list(predicted.requests)
    yield from distributions(samples, bench.slo)
    yield percentile_table(bench)
    if bench.prediction and bench.prediction.too_long:
        rejected = f"{bench.prediction.too_long} of {bench.prediction.requests} requests"
        yield f"The prediction is without {rejected}, which are too long for the graph."


def distributions(samples: Mapping[str, Sequence[ServedRequest]], slo: Slo) -> Iterator[Chart]:
    """Of TTFT, ITL and end-to-end latency. ``samples``: by what they are of."""
    ttft = {name: [one.ttft_ms for one in some] for name, some in samples.items()}
    itl = {
        name: [one.itl_ms for one in some if one.itl_ms is not None]
        for name, some in samples.items()
    }
    e2e = {name: [one.e2e_ms for one in some] for name, some in samples.items()}
    charts = (
        distribution("Distribution of TTFT", "TTFT", ttft, slo.ttft_ms),
        distribution("Distribution of ITL (mean of a request)", "ITL", itl, slo.itl_ms),
        distribution("Distribution of end-to-end latency", "end to end", e2e, slo.e2e_ms),
    )
    yield from (chart for chart in charts if chart is not None)


def percentile_table(bench: Bench) -> Table:
    """With the SLO, and with the predicted percentiles if there is a prediction."""
    found, prediction = bench.measurement, bench.prediction
    limits = {"ttft_ms": bench.slo.ttft_ms, "itl_ms": bench.slo.itl_ms, "e2e_ms": bench.slo.e2e_ms}
    headings = ["latency (ms)", *PERCENTILES, "SLO (ms)"]
    if prediction:
        headings += [f"predicted {name}" for name in PERCENTILES]
    rows = []
    for name, key in ROWS.items():
        limit = limits.get(key)
        cells = [
            name,
            *_three(getattr(found, key)),
            "-" if limit is None else limit_text(limit),
        ]
        if prediction:
            cells += _three(getattr(prediction, key, None))
        rows.append(cells)
    return Table(headings=headings, rows=rows)


def _three(values: Percentiles | None) -> list[str]:
    shown = (None,) * 3 if values is None else (values.p50, values.p90, values.p99)
    return ["-" if value is None else f"{value:,.1f}" for value in shown]


def _notes(bench: Bench) -> list[str]:
    found = bench.measurement
    notes = []
    if bench.speed != 1.0:
        notes.append(simulated_time(bench.speed))
    if found.unsent:
        notes.append(f"{found.unsent} requests were not sent, or have no record")
    if found.in_one_piece:
        notes.append(f"without ITL: {found.in_one_piece} responses, whose tokens came all at once")
    if line := failures_line(found.failures):
        no_p99 = found.failures.share > MAX_REFUSED
        notes.append(line + ("; no p99, because more than 1% failed" if no_p99 else ""))
    if 0 < found.counted < FEW:
        notes.append(f"only {found.counted} requests were counted: the p99 is the maximum")
    return [*notes, *limits_of(found)]
