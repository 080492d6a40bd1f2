"""The figures of a run as text and as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.bench import sweep_report
from penstock.bench.documents import run_document, sweep_document
from penstock.bench.measurement import Bench, Failures, Percentiles
from penstock.bench.report import report_of
from penstock.bench.run import INTERRUPTED, require_complete
from penstock.bench.sweep import Level, Sweep
from penstock.errors import BenchError
from penstock.graph.slo import Slo
from penstock.reports.model import State
from tests.bench.measured_runs import BENCH, MEASURED, STEADY, URL
from tests.reports.read import text_of
from tests.support.outputs import read_output


def bench(**measured: Any) -> Bench:
    return replace(BENCH, measurement=MEASURED.model_copy(update=measured))


def text(bench: Bench) -> str:
    return text_of(report_of(bench))


def document(bench: Bench) -> Any:
    return read_output("bench", run_document(bench).as_json())


def test_a_run_without_events_has_no_remarks() -> None:
    printed = text(BENCH)
    for line in (
        "TTFT                20.0  30.0  40.0",
        "output: 1,234.6 tokens/s",
        "served: 5.00 requests/s",
        "per user (median): 49.9 tokens/s",
        "prefix-cache hit rate: 25% of the input tokens (reported by the server)",
        "failed: 0 of 500 requests",
        "no SLO: name one with --ttft, --itl or --e2e",
    ):
        assert line in printed.splitlines()
    absent = ("reasoning", "counted by the server", "incomplete", "not sent", "distorted")
    for words in (*absent, "not steady"):
        assert words not in printed


@pytest.mark.parametrize(
    ("measured", "line"),
    [
        ({"unsent": 7}, "7 requests were not sent, or have no record"),
        (
            {"failures": Failures(sent=500, reasons={"HTTP 500": 3, "no connection": 2})},
            "failed: 5 of 500 requests (3 × HTTP 500, 2 × no connection)",
        ),
        (
            {"failures": Failures(sent=500, reasons={"HTTP 500": 6})},
            "no p99, because more than 1% of the requests failed",
        ),
        ({"in_one_piece": 3}, "without ITL: 3 responses, all of whose tokens came at once"),
        ({"reasoning": 9}, "reasoning: 9 of 400 responses began with reasoning"),
        (
            {"reasoning": 9, "reasoning_only": 2},
            "reasoning: 9 of 400 responses began with reasoning; 2 had no other output",
        ),
        ({"reasoning": 9}, "first output after reasoning  20.0  30.0  40.0"),
        ({"input_ratio": 1.08}, "input tokens counted by the server: 108% of the workload's"),
        (
            {"late_p99_ms": 12.0},
            "this machine may have distorted the latencies: "
            "1% of the requests were sent at least 12 ms late",
        ),
        (
            {"cpu_share": 0.97},
            "this machine may have distorted the latencies: 97% of its processor time was used",
        ),
        (
            {"steadiness": replace(STEADY, window_s=6.0)},
            "not steady: the measured window (6 s) is 3 times the p99 request duration (2 s); "
            "5 are needed",
        ),
    ],
)
def test_each_limitation_of_the_figures_has_a_line(measured: dict[str, Any], line: str) -> None:
    assert line in text(bench(**measured)).splitlines()


def test_an_interrupted_run_is_labelled() -> None:
    run = replace(BENCH, interrupted="interrupted")
    assert text(run).splitlines()[1] == "incomplete: interrupted"
    assert document(run)["interrupted"] == "interrupted"


def test_simulated_time_is_labelled() -> None:
    line = "all figures are in simulated time, at a simulation speed of 0.25"
    slower = replace(BENCH, endpoint=replace(BENCH.endpoint, speed=0.25))
    assert line in text(slower).splitlines()
    assert "simulated time" not in text(BENCH)
    assert document(slower)["speed"] == 0.25


def test_latencies_that_are_missing_are_dashes() -> None:
    without_p99 = Percentiles(p50=20.0, p90=30.0, p99=None)
    printed = text(bench(ttft_ms=without_p99, itl_ms=None))
    assert "TTFT                20.0  30.0  -" in printed
    assert "ITL                 -     -     -" in printed


@pytest.mark.parametrize(("goodput", "verdict"), [(0.95, "met: 95.0%"), (0.949, "missed: 94.9%")])
def test_the_verdict_on_the_slo(goodput: float, verdict: str) -> None:
    run = replace(bench(goodput=goodput), slo=Slo(ttft_ms=500.0))
    assert f"SLO {verdict} of requests within TTFT ≤ 500 ms (95% needed)" in text(run)
    assert document(run)["meets_slo"] == (goodput >= 0.95)


def test_the_json_output() -> None:
    content = document(BENCH)
    assert content["schema_version"] == 1
    assert content["ttft_ms"] == {"p50": 20.04, "p90": 30.0, "p99": 40.0}
    assert content["failures"] == {"sent": 500, "reasons": {}}
    assert content["steadiness"]["is_steady"] is True
    assert content["workload"]["name"] == "short-chat"
    assert {content[key] for key in ("meets_slo", "interrupted", "distortion")} == {None}


ON_MOCKERS = "no engine ran: mockers simulated it, so the figures are not those of a-model"
MET = Slo(ttft_ms=5000.0)


@pytest.mark.parametrize("is_substitute", [True, False, None])
@pytest.mark.parametrize("is_swept", [True, False])
def test_mockers_are_named_in_every_output(is_substitute: bool | None, is_swept: bool) -> None:
    """At the top of the text and of the page, and in JSON; their SLO is not called met."""
    endpoint = replace(BENCH.endpoint, engine_is_substitute=is_substitute)
    measured = replace(bench(goodput=1.0), slo=MET, endpoint=endpoint)
    report, content = report_of(measured), document(measured)
    if is_swept:
        levels = [Level(scale=1.0, bench=measured)]
        sweep = Sweep(levels=levels, gpus=None, interrupted="", unmeasured=())
        report = sweep_report.report_of(sweep)
        content = read_output("bench", sweep_document(sweep).as_json())
    assert (text_of(report).splitlines()[1] == ON_MOCKERS) == bool(is_substitute)
    assert (State.MET in {verdict.state for verdict in report.verdicts}) != bool(is_substitute)
    assert report.subtitle == ("simulated by mockers" if is_substitute else "measured")
    assert content["engine_is_substitute"] is is_substitute


def test_a_run_that_the_user_ended() -> None:
    with pytest.raises(KeyboardInterrupt):
        require_complete(replace(BENCH, interrupted=INTERRUPTED))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            replace(BENCH, interrupted="AIPerf failed"),
            f"{URL}: the run is incomplete: AIPerf failed. Fix: Correct the cause and repeat",
        ),
        (
            bench(counted=0, failures=Failures(sent=2, reasons={"HTTP 500": 2})),
            f"{URL}: served none of the requests: HTTP 500. Fix: Read the endpoint's log",
        ),
        (
            bench(counted=0, failures=Failures(sent=2, reasons={"HTTP 401": 2})),
            f"{URL}: served none of the requests: HTTP 401. Fix: Set the environment variable",
        ),
    ],
)
def test_a_run_without_complete_results_is_an_error(run: Bench, message: str) -> None:
    with pytest.raises(BenchError) as raised:
        require_complete(run)
    assert str(raised.value).startswith(message)
