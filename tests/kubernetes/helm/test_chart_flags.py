"""What the chart writes, checked with the parsers of the programs that the wheels contain."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.charts import Chart, Values, graph_values

PARSE_FRONTEND = """
import argparse, json, sys
from dynamo.frontend.frontend_args import FrontendArgGroup, FrontendConfig
parser = argparse.ArgumentParser(allow_abbrev=False)
FrontendArgGroup().add_arguments(parser)
for argv in json.load(sys.stdin):
    config = FrontendConfig.from_cli_args(parser.parse_args(argv))
    config.validate()
    print(json.dumps({
        "port": config.http_port, "mode": config.router_mode, "sync": config.router_replica_sync,
        "events": config.use_kv_events, "credit": config.overlap_score_credit,
        "scale": config.prefill_load_scale, "temperature": config.router_temperature,
        "ttl": config.router_ttl_secs, "initial": config.min_initial_workers,
        "blocks": config.active_decode_blocks_threshold,
        "tokens": config.active_prefill_tokens_threshold, "queue": config.router_queue_threshold,
        "conditional": config.conditional_disagg_enabled, "migration": config.migration_limit,
        "tokenizer": config.tokenizer_backend, "fallback": config.tokenizer_fallback,
    }))
"""
ROUTER = {
    "overlap_score_credit": 0.5,
    "prefill_load_scale": 2,
    "temperature": 1e-07,
    "ttl_s": 30,
    "min_initial_workers": 4,
    "active_decode_blocks_threshold": 0.9,
    "active_prefill_tokens_threshold": 1048576,
    "queue_threshold": 1.5,
    "conditional_disagg": True,
}


def test_the_parser_of_the_frontend_accepts_every_flag(chart: Chart) -> None:
    graphs = [
        graph_values(),
        graph_values(router=ROUTER, frontend={"replicas": 2, "port": 9000, "migration_limit": 0}),
        graph_values(router={"kv_events": False}, frontend={"tokenizer": "default"}),
        *(graph_values(router={"mode": mode}) for mode in MODES),
    ]
    argvs = [chart.args(graph, "frontend")[2:] for graph in graphs]
    done = subprocess.run(
        [sys.executable, "-c", PARSE_FRONTEND],
        input=json.dumps(argvs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plain, tuned, guessing, *modes = map(json.loads, done.stdout.splitlines())
    assert plain["mode"] == "kv"
    assert (plain["migration"], plain["tokenizer"], plain["fallback"]) == (3, "fastokens", False)
    assert (plain["sync"], plain["events"]) == (True, True)
    assert tuned == {
        "port": 9000,
        "mode": "kv",
        "sync": True,
        "events": True,
        "credit": 0.5,
        "scale": 2.0,
        "temperature": 1e-07,
        "ttl": 30.0,
        "initial": 4,
        "blocks": 0.9,
        "tokens": 1048576,
        "queue": 1.5,
        "conditional": True,
        "migration": 0,
        "tokenizer": "fastokens",
        "fallback": False,
    }
    assert guessing["events"] is False
    assert [m["mode"] for m in modes] == MODES


MODES = [
    "round-robin", "random", "power-of-two", "least-loaded", "direct", "device-aware-weighted",
]  # fmt: skip


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_the_mocker_accepts_its_configuration(chart: Chart, pool: str) -> None:
    config = pytest.importorskip("dynamo.mocker.config")
    configured: Values = {
        "engine": {"backend": "trtllm", "speedup_ratio": 2.0, "num_gpu_blocks": 1048576},
        "startup_time": 0.5,
        "dp_size": 2,
    }
    values = graph_values(
        model={"id": "a/b", "context_length": 131072},
        engine={"kind": "mocker", "config": configured},
    )
    taken = config.normalize_mocker_config(chart.config_text(values, pool))
    assert taken["engine"]["worker_type"] == pool
    assert taken["engine"]["max_model_len"] == 131072
    assert taken["engine"]["num_gpu_blocks"] == 1048576
    assert taken["dynamo"]["enable_local_indexer"] is True
    assert (taken["dp_size"], taken["startup_time"]) == (2, 0.5)


def test_the_parser_of_the_mocker_accepts_its_arguments(chart: Chart) -> None:
    args = pytest.importorskip("dynamo.mocker.args")
    taken = args.parse_args(chart.args(graph_values(model={"id": "a/b"}), "prefill"))
    assert (taken.model_path, taken.model_name) == ("a/b", "a/b")
    assert taken.is_prefill_worker
    assert str(taken.extra_engine_args) == "/etc/penstock/engine.json"
