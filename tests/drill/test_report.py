"""A drill's result as text and JSON, and the data of its charts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.drill.evaluate import evaluate
from penstock.drill.memory import MemoryTrend
from penstock.drill.page import report_of, throughput, ttft_ms
from penstock.drill.report import as_json, print_result, summary
from penstock.drill.run import DrillOptions, DrillResult
from penstock.drill.traffic import Ending
from penstock.reports.charts import Chart
from penstock.reports.page import State
from tests.drill.test_evaluate import HISTORY, fault, request
from tests.support.outputs import read_output

REPEAT = "penstock drill 'my graph.yaml' --seed 7"
TITLE = "my graph.yaml"
TREND = MemoryTrend(
    process="frontend.0", minutes=60, first_mib=100, last_mib=101, slope_mib_per_hour=1.04
)
CUT = request(9, ending=Ending.TRUNCATED, error="19 tokens <b>streamed</b>, 20 requested")


def result(*planted: object, permitted: dict[str, int] | None = None) -> DrillResult:
    history = (*HISTORY[:9], *planted, *HISTORY[10:])
    faults = (
        fault(),
        fault(number=2, kind="scale", target="graph", role=None, started_s=20.0, recovered_s=22.0),
    )
    return DrillResult(
        options=DrillOptions(count=2, seed=7, streams=8),
        evaluation=evaluate(history, faults, stall_s=5, permitted=permitted),  # type: ignore[arg-type]
        history=history,  # type: ignore[arg-type]
        faults=faults,
        memory=(TREND,),
        seconds=31.0,
    )


def test_the_summary_begins_with_the_verdict() -> None:
    assert summary(result()) == ["passed: 2 faults, 29 requests, 0 failed, 0 unavoidable"]
    verdict, failure = summary(result(CUT))
    assert verdict == "failed: 2 faults, 30 requests, 1 failed, 0 unavoidable"
    assert failure.startswith("request 9: truncated after kill decode.0 (19 tokens")


def test_mockers_are_named_in_every_output(capsys: pytest.CaptureFixture[str]) -> None:
    mocked = replace(result(), engine_is_substitute=True)
    print_result(mocked, "penstock drill g.yaml")
    assert capsys.readouterr().out.startswith("no engine ran: mockers simulated it")
    assert json.loads(as_json(mocked, ""))["engine_is_substitute"] is True
    assert "mockers simulated it" in report_of("g.yaml", mocked, ()).subtitle
    print_result(result(), "penstock drill g.yaml")
    assert "mockers" not in capsys.readouterr().out


def test_many_failures_are_shortened() -> None:
    lines = summary(result(*[CUT] * 40))
    assert len(lines) == 12
    assert lines[-1] == "… and 30 more"


def test_the_limits_of_the_graph_are_shown() -> None:
    lines = summary(result(CUT, permitted={"kill": 1}))
    assert lines[0].startswith("passed")
    assert lines[-1] == "permitted for each fault by `drill.permitted_failures`: kill 1"


def test_the_json_names_each_failure_with_its_fault() -> None:
    document = read_output("drill", as_json(result(CUT), REPEAT))
    assert document["passed"] is False
    assert document["failed"]["truncated"] == 1
    assert document["failures"][0] | {"error": ""} == {
        "request": 9,
        "type": "truncated",
        "error": "",
        "fault": 1,
        "unavoidable": False,
        "cause": "another replica could have served it instead of decode.0",
    }
    assert [row["recovery_s_median"] for row in document["rows"]] == [3.0, 2.0]


def test_the_text_is_a_table_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(CUT), REPEAT)
    out = capsys.readouterr().out
    assert "failed: 2 faults" in out
    assert f"repeat: {REPEAT}" in out
    assert "memory of frontend.0: 100 → 101 MiB in 60 min, slope +1.0 MiB/h" in out


def test_the_charts_shade_each_fault_until_its_recovery() -> None:
    report = report_of(TITLE, result(CUT), [])
    charts = [part for part in report.sections[0].parts if isinstance(part, Chart)]
    assert [chart.title for chart in charts] == [
        "Completed requests per second",
        "TTFT by the time a request started",
        "Failed requests per second",
    ]
    for chart in charts:
        shades = [(shape["x0"], shape["x1"]) for shape in chart.layout["shapes"]]
        assert shades == [(10.0, 13.0), (20.0, 22.0)]
    assert [verdict.state for verdict in report.verdicts] == [State.MISSED]


def test_the_charts_count_per_second() -> None:
    drill = result(CUT)
    assert sum(throughput(drill)) == 29  # completed
    assert throughput(drill)[2] == 1
    assert ttft_ms(drill)[9] is None  # only the request that was cut began there
    assert ttft_ms(drill)[10] == pytest.approx(100)
