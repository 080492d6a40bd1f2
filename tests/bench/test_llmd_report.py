"""llm-d's Benchmark Report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from penstock.bench.llmd_report import MARK, VERSION, as_yaml, report_of, stack_of
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints, understand
from penstock.workload import find_workload
from tests.bench.hand_written import START_NS
from tests.bench.logged_runs import run_of
from tests.support.command_line import ROOT
from tests.support.outside_files import llmd_schema

GRAPHS = ROOT / "dynamo_graphs"


def report(folder: Path, number: int = 100, **more: Any) -> dict[str, Any]:
    return report_of(run_of(folder, number, **more), uid="an-id")


def aggregate(content: dict[str, Any]) -> dict[str, Any]:
    return dict(content["results"]["request_performance"]["aggregate"])


def test_the_figures_are_those_of_the_measurement(tmp_path: Path) -> None:
    bench = run_of(tmp_path, 100)
    figures = aggregate(report_of(bench, uid="an-id"))
    ttft, measured = figures["latency"]["time_to_first_token"], bench.measurement
    assert measured.ttft_ms is not None
    assert (ttft["units"], ttft["p50"], ttft["p99"]) == (
        "ms",
        measured.ttft_ms.p50,
        measured.ttft_ms.p99,
    )
    counted = [request.ttft_ms for request in bench.log.counted]
    assert (ttft["min"], ttft["max"]) == (min(counted), max(counted))
    assert ttft["mean"] == pytest.approx(sum(counted) / len(counted))
    assert figures["latency"]["time_per_output_token"]["p50"] == 10.0
    assert figures["throughput"]["request_rate"] == {
        "units": "queries/s",
        "mean": measured.request_rate,
    }
    assert figures["requests"]["total"] == 100


def test_the_time_of_the_run(tmp_path: Path) -> None:
    time = report(tmp_path)["run"]["time"]
    start = datetime.fromisoformat(time["start"])
    assert start == datetime.fromtimestamp(START_NS / 1e9, UTC)
    # The last request is sent after 9.9 s, and takes 219 ms.
    assert time["duration"] == "PT10.119S"
    assert (datetime.fromisoformat(time["end"]) - start).total_seconds() == pytest.approx(10.119)


def test_many_failures_leave_no_highest_percentiles(tmp_path: Path) -> None:
    figures = aggregate(report(tmp_path, failed=[5, 6]))
    assert figures["requests"]["failures"] == 2
    assert not {"p99", "p99p9", "max"} & set(figures["latency"]["request_latency"])
    assert {"p95", "min"} <= set(figures["latency"]["request_latency"])


def test_what_is_not_known_is_missing(tmp_path: Path) -> None:
    content = report(tmp_path)
    assert set(content["scenario"]) == {"load"}
    assert set(content["run"]) == {"uid", "time", "description"}
    nothing = aggregate(report(tmp_path, 3, failed=range(3)))
    assert nothing["latency"] == {}
    assert nothing["requests"] == {"total": 3, "failures": 3, "incomplete": 0}


def test_an_incomplete_run_says_so(tmp_path: Path) -> None:
    content = report(tmp_path, unsent=50, interrupted="interrupted")
    assert content["run"]["description"].endswith(" Incomplete: interrupted.")
    assert aggregate(content)["requests"]["total"] == 50


def test_the_load_is_that_of_the_workload(tmp_path: Path) -> None:
    load = report(tmp_path)["scenario"]["load"]["standardized"]
    assert (load["tool"], load["rate_qps"], load["source"]) == ("aiperf", 4.0, "random")
    assert load["input_seq_len"] == {"distribution": "fixed", "value": 100}
    assert "concurrency" not in load
    agentic = report(tmp_path, workload=find_workload("agentic"))["scenario"]["load"]
    assert agentic["standardized"]["multi_turn"]["enabled"] is True


def test_the_stack_of_a_graph() -> None:
    graph = understand(open_source(GRAPHS / "gpt-oss-120b-b200-disagg.yaml"), Hints())
    stack = {each["metadata"]["label"]: each["standardized"] for each in stack_of(graph)}
    assert set(stack) == {"prefill", "decode"}
    decode = stack["decode"]
    assert (decode["role"], decode["tool"]) == ("decode", "dynamo.trtllm")
    assert decode["accelerator"]["model"] == "b200"
    assert decode["accelerator"]["count"] == decode["accelerator"]["parallelism"]["tp"]
    without_gpus = understand(open_source(GRAPHS / "quickstart.yaml"), Hints())
    assert stack_of(without_gpus) == []


def reports(folder: Path) -> Iterator[dict[str, Any]]:
    """Of all forms."""
    yield report(folder)
    yield report(folder, failed=[5, 6])
    yield report(folder, 3, failed=range(3))
    yield report(folder, unsent=50, interrupted="interrupted")
    yield report(folder, workload=find_workload("agentic"))
    bench = run_of(folder, 2)
    workload = bench.workload.workload
    arrival = workload.arrival
    assert arrival is not None
    closed = arrival.model_copy(update={"poisson": None, "concurrency": 4})
    loaded = bench.workload.with_workload(workload.model_copy(update={"arrival": closed}))
    yield report_of(replace(bench, workload=loaded), uid="an-id", experiment="a-sweep", stage=2)
    for graph in ("gpt-oss-120b-b200-disagg", "gpt-oss-20b-h100"):
        deployment = understand(open_source(GRAPHS / f"{graph}.yaml"), Hints())
        yield report_of(bench, uid="an-id", stack=stack_of(deployment))


def test_the_yaml_has_a_mark_and_no_other_types(tmp_path: Path) -> None:
    for report in reports(tmp_path):
        text = as_yaml(report)
        assert text.startswith(f"{MARK}\n")
        assert yaml.safe_load(text) == json.loads(json.dumps(report))
        assert report["version"] == VERSION


def test_reports_of_all_forms_have_llm_ds_schema(tmp_path: Path) -> None:
    path = llmd_schema()
    if path is None:
        pytest.skip("PENSTOCK_LLMD_CHECKOUT does not name a checkout of llm-d/llm-d-benchmark")
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text("utf-8")))
    for each in reports(tmp_path):
        validator.validate(each)
    wrong = report(tmp_path)
    wrong["results"]["request_performance"]["aggregate"]["latency"]["unknown"] = 1
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(wrong)
