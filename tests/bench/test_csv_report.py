"""CSV of a run, a sweep and a comparison."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

from penstock.bench.csv_report import (
    LEVEL_COLUMNS,
    METRIC_COLUMNS,
    REQUEST_COLUMNS,
    comparison_csv,
    run_csv,
    sweep_csv,
)
from penstock.bench.measurement import Percentiles
from penstock.bench.sweep import Level, Sweep
from penstock.graph.slo import Slo
from penstock.simulate.window import percentile
from tests.bench.logged_runs import run_of
from tests.bench.measured_runs import BENCH, MEASURED
from tests.bench.test_limits import comparison


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_each_request_that_was_sent_has_a_row(tmp_path: Path) -> None:
    bench = run_of(tmp_path, 40, failed=[3], unsent=2, slo=Slo(ttft_ms=30.0))
    text = run_csv(bench)
    assert text.splitlines()[0].split(",") == list(REQUEST_COLUMNS)
    cells = rows(text)
    assert [row["conversation"] for row in cells] == [f"r{number}" for number in range(38)]
    assert cells[2] == {
        "conversation": "r2",
        "turn": "0",
        "sent_ms": "200.0",
        "input_tokens": "100",
        "cached_tokens": "0",
        "output_tokens": "11",
        "ttft_ms": "22.0",
        "itl_ms": "10.0",
        "e2e_ms": "122.0",
        "is_counted": "false",
        "meets_slo": "true",
        "failure": "",
    }
    assert cells[20]["meets_slo"] == "false"


def test_a_failed_request_has_its_reason_and_no_latencies(tmp_path: Path) -> None:
    bench = run_of(tmp_path, 40, failed=[3], slo=Slo(ttft_ms=30.0))
    failed = rows(run_csv(bench))[3]
    assert (failed["failure"], failed["input_tokens"]) == ("HTTP 500", "100")
    assert (failed["meets_slo"], failed["is_counted"]) == ("false", "false")
    assert (failed["ttft_ms"], failed["output_tokens"], failed["sent_ms"]) == ("", "", "300.0")


def test_percentiles_can_be_computed_from_the_counted_rows(tmp_path: Path) -> None:
    bench = run_of(tmp_path, 100)
    ttft = [float(r["ttft_ms"]) for r in rows(run_csv(bench)) if r["is_counted"] == "true"]
    measured = bench.measurement
    assert len(ttft) == measured.counted < 100
    assert measured.ttft_ms is not None
    assert percentile(ttft, 0.9) == measured.ttft_ms.p90
    assert {row["meets_slo"] for row in rows(run_csv(bench))} == {""}  # without an SLO


def test_each_load_of_a_sweep_has_a_row() -> None:
    many = replace(
        BENCH,
        measurement=MEASURED.model_copy(
            update={"itl_ms": None, "ttft_ms": Percentiles(p50=1, p90=2, p99=None)}
        ),
    )
    levels = [Level(scale=1, bench=BENCH), Level(scale=2.5, bench=replace(many, interrupted="x"))]
    text = sweep_csv(Sweep(levels=levels, unmeasured=(), gpus=None, interrupted="x"))
    assert text.splitlines()[0].split(",") == list(LEVEL_COLUMNS)
    first, second = rows(text)
    assert (first["scale"], first["ttft_p99_ms"], first["tokens_per_second_gpu"]) == (
        "1",
        "40.0",
        "",
    )
    assert (second["scale"], second["ttft_p99_ms"], second["itl_p50_ms"]) == ("2.5", "", "")
    assert (first["interrupted"], second["interrupted"]) == ("", "x")


def test_each_metric_of_a_comparison_has_a_row() -> None:
    text = comparison_csv(comparison())
    assert text.splitlines()[0].split(",") == list(METRIC_COLUMNS)
    (row,) = rows(text)
    assert (row["metric"], row["a_ms"], row["b_ms"]) == ("ttft_p90", "100.0", "110.0")
    assert rows(comparison_csv(comparison(changes=()))) == []
