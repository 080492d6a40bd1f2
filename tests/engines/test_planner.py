"""PlannerConfig: its fields as data, and the chart's configurations as the wheel reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from typing import Any

import pytest

from penstock.manifests.render import render
from tests.support.command_line import ROOT

PARSE = """
import json, sys
from penstock.engines.substitutes import PLANNER, substituted
with substituted(PLANNER):
    from dynamo.planner.config.planner_config import PlannerConfig
answers = []
for text in json.loads(sys.argv[1]):
    try:
        config = PlannerConfig.from_config_arg(text)
        answers.append(config.model_dump(mode="json"))
    except ValueError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


def parsed(*texts: str) -> list[Any]:
    command = [sys.executable, "-c", PARSE, json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def config_of(**sections: Any) -> str:
    values = {
        "model": {"id": "openai/gpt-oss-120b"},
        "engine": {"kind": "trtllm"},
        "planner": {"max_gpus": 16, "config": {"ttft_ms": 500, "itl_ms": 20}},
        **sections,
    }
    (graph,) = (
        o for o in render(values, name="demo").objects if o["kind"] == "DynamoGraphDeployment"
    )
    (planner,) = (c for c in graph["spec"]["components"] if c["name"] == "planner")
    (main,) = planner["podTemplate"]["spec"]["containers"]
    assert main["args"][0] == "--config"
    return str(main["args"][1])


@pytest.mark.slow
def test_the_fields_are_those_of_the_installed_planner() -> None:
    command = [sys.executable, str(ROOT / "tools" / "dump_planner_config.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    stored = files("penstock.engines.data").joinpath("planner_config.json").read_text("utf-8")
    assert json.loads(done.stdout) == json.loads(stored)


@pytest.mark.slow
def test_the_installed_planner_accepts_the_charts_configurations() -> None:
    planned = {"autoscaling": {"owner": "planner", "min": 2}}
    load = {"optimization_target": "load", "decode_scale_up_kv_rate": 80}
    load |= {"decode_scale_down_kv_rate": 40}
    both, decode_only, alone, waiting, loaded = parsed(
        config_of(prefill=planned, decode={**planned, "gpus": 4}),
        config_of(prefill={}, decode=planned),
        config_of(worker=planned),
        config_of(worker={}),
        config_of(worker=planned, planner={"max_gpus": 16, "config": load}),
    )
    assert (both["mode"], both["backend"], both["environment"]) == (
        "disagg",
        "trtllm",
        "kubernetes",
    )
    assert (both["prefill_min_endpoint"], both["decode_min_endpoint"]) == (2, 2)
    assert (both["max_gpu_budget"], both["live_dashboard_port"]) == (16, 0)
    assert (both["enable_load_scaling"], both["enable_throughput_scaling"]) == (True, True)
    assert (decode_only["mode"], decode_only["decode_min_endpoint"]) == ("decode", 2)
    assert decode_only["prefill_min_endpoint"] is None
    assert (alone["mode"], alone["min_endpoint"]) == ("agg", 2)
    assert waiting["min_endpoint"] == 1
    assert (loaded["optimization_target"], loaded["enable_throughput_scaling"]) == ("load", False)


@pytest.mark.slow
def test_the_rule_reports_what_the_planner_rejects() -> None:
    refused = {
        "load_predictor": "average",
        "load_scaling_down_sensitivity": 101,
        "fpm_sample_bucket_size": 0,
        "max_throughput_scaling_replicas": 0,
    }
    taken = {"ttft": 300, "no_such_key": 1}  # and it does nothing with that one: PS811
    answers = parsed(*(json.dumps({key: value}) for key, value in (refused | taken).items()))
    assert [isinstance(answer, dict) for answer in answers] == [False] * 4 + [True] * 2
