"""A drill's result as text and JSON, and the data of its charts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.drill.documents import drill_document
from penstock.drill.evaluate import evaluate
from penstock.drill.memory import MemoryTrend
from penstock.drill.report import report_of
from penstock.drill.run import DrillOptions, DrillResult
from penstock.drill.traffic import Ending, RequestKind
from penstock.reports.model import State
from tests.drill.test_evaluate import HISTORY, fault, request
from tests.reports.read import charts_in, text_of
from tests.support.outputs import read_output

REPEAT = "penstock drill 'my graph.yaml' --seed 7"
TITLE = "my graph.yaml"
TREND = MemoryTrend(
    process="frontend.0", minutes=60, first_mib=100, last_mib=101, slope_mib_per_hour=1.04
)
KILL = fault(ends_requests=True)
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


def text(result: DrillResult) -> list[str]:
    return text_of(report_of(TITLE, result)).splitlines()


def test_the_text_has_the_verdict_the_table_and_the_failures() -> None:
    assert text(result())[1] == "passed: 2 faults, 29 requests, 0 retried, 0 failed, 0 unavoidable"
    title, verdict, head, *_, failure, memory = text(result(CUT))
    assert title == "my graph.yaml; 8 concurrent requests of 60 output tokens (chat)"
    assert verdict == "failed: 2 faults, 30 requests, 0 retried, 1 failed, 0 unavoidable"
    assert head.startswith("kind")
    assert head.endswith("recovery (s)")
    assert failure.startswith("request 9: truncated after kill decode.0 (19 tokens")
    assert memory == "memory of frontend.0: 100 → 101 MiB in 60 min, slope +1.0 MiB/h"


def test_mockers_are_named_in_every_output() -> None:
    mocked = replace(result(), engine_is_substitute=True)
    assert text(mocked)[1].startswith("no engine ran: mockers simulated it")
    assert drill_document(mocked, "").engine_is_substitute is True
    assert not any("mockers" in line for line in text(result()))


def test_many_failures_are_shortened() -> None:
    lines = [line for line in text(result(*[CUT] * 40)) if line.startswith(("request", "…"))]
    assert len(lines) == 11
    assert lines[-1] == "… and 30 more"


def test_the_limits_of_the_graph_are_shown() -> None:
    lines = text(result(CUT, permitted={"kill": 1}))
    assert lines[1].startswith("passed")
    assert "permitted for each fault by `drill.permitted_failures`: kill 1" in lines


def test_the_json_names_each_failure_with_its_fault() -> None:
    document = read_output("drill", drill_document(result(CUT), REPEAT).as_json())
    assert document["passed"] is False
    assert document["failed"]["truncated"] == 1
    assert document["failures"][0] | {"error": ""} == {
        "request": 9,
        "kind": "chat",
        "type": "truncated",
        "error": "",
        "fault": 1,
        "unavoidable": False,
        "not_migratable": False,
        "cause": "another replica could have served it instead of decode.0",
    }
    assert [row["recovery_s_median"] for row in document["rows"]] == [3.0, 2.0]


def test_requests_that_dynamo_does_not_migrate_and_retries_are_counted_apart() -> None:
    lost = request(9, kind=RequestKind.GUIDED, ending=Ending.TRUNCATED, error="503")
    retried = request(10, rejections=("HTTP 503",), rejected_s=10.5)
    outcome = result(lost, retried)
    outcome = replace(outcome, evaluation=evaluate(outcome.history, [KILL], stall_s=5))
    assert text(outcome)[1] == "passed: 2 faults, 31 requests, 1 retried, 1 failed, 1 unavoidable"
    assert any(line.startswith("1 requests with a grammar (guided") for line in text(outcome))
    document = read_output("drill", drill_document(outcome, REPEAT).as_json())
    assert (document["not_migratable"], document["retried"]) == (1, 1)
    (row,) = document["rows"]
    assert (row["not_migratable"], row["retried"]) == (1, 1)


def test_a_recovery_above_its_limit_is_named() -> None:
    options = DrillOptions(count=2, seed=7, recovery_s={"kill": 2.0})
    slow = evaluate(HISTORY, [fault()], stall_s=5, recovery_s=options.recovery_s)
    outcome = replace(result(), options=options, evaluation=slow)
    assert text(outcome)[1].startswith("failed")
    line = "recovery too slow: kill decode.0 took 3.0 s, and `drill.recovery_s` permits 2 s"
    assert line in text(outcome)


def test_the_charts_shade_each_fault_and_count_per_second() -> None:
    report = report_of(TITLE, result(CUT))
    charts = charts_in(report)
    assert list(charts) == [
        "Completed requests per second",
        "TTFT by the time a request started",
        "Failed requests per second",
    ]
    for chart in charts.values():
        assert [(band.begin, band.end) for band in chart.bands] == [(10.0, 13.0), (20.0, 22.0)]
    assert [verdict.state for verdict in report.verdicts] == [State.MISSED]
    (completed,) = charts["Completed requests per second"].series
    assert sum(count or 0 for count in completed.y) == 29
    assert completed.y[2] == 1
    median = charts["TTFT by the time a request started"].series[0].y
    assert median[9] is None  # only the request that was cut began there
    assert median[10] == pytest.approx(100)
