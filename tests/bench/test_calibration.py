"""Calibration of a run: hidden factors of a replay are recovered, and predict other traffic."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench.calibration import calibration_of
from penstock.bench.documents import run_document
from penstock.bench.measurement import Bench, Failures, RequestLog
from penstock.bench.records import Records
from penstock.bench.report import report_of
from penstock.bench.trace_file import keyed
from penstock.errors import BenchError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.calibration import CalibrationFile, Calibrations, Factors, corrected
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Study
from penstock.simulate.window import ServedRequest
from penstock.workload.load import LoadedWorkload, parse_workload
from tests.bench.measured_runs import BENCH, MEASURED
from tests.reports.read import text_of
from tests.simulate.test_calibration import ENTRY

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
TRAFFIC = (
    "requests: 60\ninput: {mean: 5000, cv: 0.6, max: 16000}\noutput: {mean: 20, cv: 0.3}\n"
    "arrival: {poisson: 2}\n"
)
OTHER = "requests: 60\ninput: {mean: 1500, cv: 0.5}\noutput: {mean: 30}\narrival: {poisson: 8}\n"
ISSUE = Factors(prefill_speed=0.65, step_time=1.1, fixed_ttft_ms=30.0)
RANDOM = random.Random(22)
ANY = Factors(
    prefill_speed=RANDOM.uniform(0.4, 1.6),
    step_time=RANDOM.uniform(0.6, 1.8),
    fixed_ttft_ms=RANDOM.uniform(10, 100),
)


def of(name: str) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", ("frontend.replicas=1",)), Hints())


def run_of(deployment: Replayable, loaded: LoadedWorkload, seed: int, replays: Replays) -> Bench:
    """A replay as a measured run, with some noise."""
    (row,) = Study(workload=loaded, replays=replays, seeds=1, first_seed=seed).rows(
        [deployment], None
    )
    noise = random.Random(seed)
    rows = defaultdict[tuple[int, int], list[ServedRequest]](list)
    for served_request in served_requests(row.results[0]):
        later = replace(served_request, ttft_ms=served_request.ttft_ms + noise.uniform(-1, 1))
        rows[served_request.input_tokens, served_request.tokens].append(later)
    requests = keyed(sorted(loaded.requests(seed), key=lambda each: each.at_ms or 0.0))
    records = Records(
        start_ms=0.0,
        served={
            key: rows[request.input_tokens, request.output_tokens].pop(0)
            for key, request in requests.items()
        },
        failed=(),
        unsent=0,
        late_ms=(),
        chunk_gaps_ms=(),
        requested_tokens=0,
    )
    log = RequestLog(requests=requests, records=records)
    measurement = MEASURED.model_copy(update={"prefix_hit_rate": 0.0})
    return replace(BENCH, workload=loaded, seed=seed, measurement=measurement, log=log)


@pytest.mark.needs("sim")
@pytest.mark.parametrize(
    ("name", "hidden"),
    [("gpt-oss-120b-h100-disagg", ISSUE), ("gpt-oss-120b-h100-latency", ANY)],
)
def test_hidden_factors_are_recovered_and_predict_other_traffic(name: str, hidden: Factors) -> None:
    graph = of(name)
    twin = corrected(graph, hidden)
    other = parse_workload(OTHER, "other.yaml")
    with Replays(Cache(None, "")) as replays:
        run = run_of(twin, parse_workload(TRAFFIC, "w.yaml"), 1, replays)
        entry = calibration_of(run, graph, replays, "penstock bench")
        assert entry.prefill_speed == pytest.approx(hidden.prefill_speed, rel=0.05)
        assert entry.step_time == pytest.approx(hidden.step_time, rel=0.05)
        assert entry.fixed_ttft_ms == pytest.approx(hidden.fixed_ttft_ms, rel=0.05, abs=1.5)
        assert entry.requests == 54
        assert abs(entry.errors_after.ttft_p50) < 0.05 < abs(entry.errors_before.ttft_p50)
        file = CalibrationFile(
            name="c.yaml", content=Calibrations(penstock_calibration=1, entries=(entry,))
        )
        study = Study(workload=other, replays=replays, seeds=1, first_seed=5)
        (actual, calibrated, before) = (
            row.metrics[0] for row in study.rows([twin, file.calibrated(graph), graph], None)
        )
    assert calibrated.ttft_p50_ms == pytest.approx(actual.ttft_p50_ms, rel=0.05)
    assert calibrated.itl_p50_ms == pytest.approx(actual.itl_p50_ms, rel=0.05)
    assert before.itl_p50_ms != pytest.approx(actual.itl_p50_ms, rel=0.08)


@pytest.mark.needs("sim")
def test_a_run_with_failures_is_refused() -> None:
    failures = Failures(sent=100, reasons={"HTTP 500": 2})
    run = replace(BENCH, measurement=MEASURED.model_copy(update={"failures": failures}))
    with Replays(Cache(None, "")) as replays, pytest.raises(BenchError, match=r"2\.0% .* failed"):
        calibration_of(run, of("gpt-oss-120b-h100-latency"), replays, "")


def test_the_factors_are_reported() -> None:
    entry = ENTRY.model_copy(update={"warnings": ("a reason",)})
    run = replace(BENCH, calibration=entry)
    text = text_of(report_of(run)).splitlines()
    start = text.index(
        "calibration of gpt-oss-120b, h100, trtllm, from 180 requests (95% interval):"
    )
    assert text[start + 1 : start + 10] == [
        "factor         value    95% interval",
        "prefill speed  × 0.500  (0.480 to 0.520)",
        "step time      × 1.250  (1.200 to 1.300)",
        "fixed TTFT     40.0 ms  (35.0 to 45.0 ms)",
        "measured compared with predicted: without → with these factors:",
        "latency  p50          p90",
        "TTFT     +50% → +50%  +40% → +40%",
        "ITL      +10% → +10%  +10% → +10%",
        "warning: a reason",
    ]
    assert run_document(run).calibration == entry
