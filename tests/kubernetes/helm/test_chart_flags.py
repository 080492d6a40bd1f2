"""What the chart writes, checked with the parsers of the programs that the wheels contain."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dynamo.llm import KvRouterConfig
from dynamo.mocker.args import parse_args
from dynamo.mocker.config import normalize_mocker_config

from penstock.engines.flags import load
from penstock.engines.versions import knows
from penstock.graph.versions import VERSIONS
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
    "queue_policy": "wspt",
    "conditional_disagg": True,
}


@pytest.mark.slow
def test_the_parser_of_the_frontend_accepts_every_flag(chart: Chart) -> None:
    graphs = [
        graph_values(),
        graph_values(router=ROUTER, frontend={"replicas": 2, "port": 9000, "migration_limit": 0}),
        graph_values(router={"kv_events": False}, frontend={"tokenizer": "default"}),
        *(graph_values(router={"mode": mode}) for mode in MODES),
    ]
    argvs = [chart.args(graph, "frontend")[2:] for graph in graphs]
    policy = argvs[1].index("--router-policy-config")
    assert argvs[1][policy + 1] == "/etc/penstock/router.yaml"
    del argvs[1][policy : policy + 2]  # the file is in a ConfigMap: see the next test
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
        "credit": 1.0,
        "scale": 1.0,
        "temperature": 0.0,
        "ttl": 30.0,
        "initial": 4,
        "blocks": 0.9,
        "tokens": 1048576,
        "queue": None,
        "conditional": True,
        "migration": 0,
        "tokenizer": "fastokens",
        "fallback": False,
    }
    assert guessing["events"] is False
    assert [m["mode"] for m in modes] == MODES


def policy_text(chart: Chart, values: Values) -> str:
    """The router's file, through the volume that the frontend mounts."""
    pod = chart.pod(values, "frontend")
    (volume,) = (v for v in pod["volumes"] if v["name"] == "router-config")
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "router-config")
    assert mount["mountPath"] == "/etc/penstock"
    objects = chart.render(values).objects
    (config_map,) = (o for o in objects if o["metadata"]["name"] == volume["configMap"]["name"])
    return str(config_map["data"]["router.yaml"])


def test_the_router_reads_the_policy_file(chart: Chart, tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(policy_text(chart, graph_values(router=ROUTER)))
    KvRouterConfig(router_policy_config=str(file))  # raises for an invalid file
    policy = yaml.safe_load(file.read_text())
    (instance,) = policy["worker_selection"]["instances"]
    assert instance["type"] == "dynamo-default-cost-fn"
    # serde reads 1e-07 as a number; PyYAML reads it as text.
    assert {k: float(v) for k, v in instance["parameters"].items()} == {
        "overlap_score_credit": 0.5,
        "prefill_load_scale": 2.0,
        "router_temperature": 1e-07,
    }
    assert {policy["worker_selection"][s] for s in ("aggregated", "prefill", "decode")} == {
        instance["name"]
    }
    (queue,) = policy["policy_classes"]
    assert (queue["prefill_busy_threshold_frac"], queue["queue_policy"]) == (1.5, "wspt")


@pytest.mark.parametrize("key", ["overlap_score_credit", "temperature", "queue_threshold"])
def test_the_policy_file_has_only_what_the_graph_sets(chart: Chart, key: str) -> None:
    policy = yaml.safe_load(policy_text(chart, graph_values(router={key: 0})))
    assert ("worker_selection" in policy) is (key != "queue_threshold")
    assert ("policy_classes" in policy) is (key == "queue_threshold")


def test_a_graph_without_these_settings_has_no_policy_file(chart: Chart) -> None:
    values = graph_values(router={"ttl_s": 30})
    assert "--router-policy-config" not in chart.args(values, "frontend")
    assert "volumes" not in chart.pod(values, "frontend")


def test_a_frontend_of_1_5_gets_flags_instead_of_the_file(chart: Chart) -> None:
    args = chart.args(graph_values("trtllm", dynamo="1.5.1", router=ROUTER), "frontend")
    assert "--router-policy-config" not in args
    assert args[args.index("--router-queue-threshold") + 1] == "1.5"
    assert args[args.index("--router-queue-policy") + 1] == "wspt"
    assert float(args[args.index("--router-temperature") + 1]) == 1e-07


@pytest.mark.parametrize(
    ("version", "engine"),
    [
        *((version, engine) for version in VERSIONS for engine in ("trtllm", "vllm")),
        *((version, "mocker") for version in VERSIONS[1:]),
    ],
)
def test_every_flag_of_the_chart_exists_in_the_version(
    chart: Chart, version: str, engine: str
) -> None:
    values = graph_values(engine, dynamo=version, router=ROUTER)
    written = {"dynamo.frontend": chart.args(values, "frontend")}
    written[f"dynamo.{engine}"] = [*chart.args(values, "prefill"), *chart.args(values, "decode")]
    unknown = [
        (module, flag)
        for module, args in written.items()
        for flag in args
        if flag.startswith("--") and not knows(version, module, flag) and flag not in ENGINES_OWN
    ]
    assert not unknown


# vLLM's own flags, which the tables of versions do not contain.
ENGINES_OWN = ("--model", "--config", "--served-model-name")
MODES = [
    "round-robin", "random", "power-of-two", "least-loaded", "direct", "device-aware-weighted",
]  # fmt: skip


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_the_mocker_accepts_its_configuration(chart: Chart, pool: str) -> None:
    configured: Values = {
        "engine": {"backend": "trtllm", "speedup_ratio": 2.0, "num_gpu_blocks": 1048576},
        "startup_time": 0.5,
        "dp_size": 2,
    }
    values = graph_values(
        model={"id": "a/b", "context_length": 131072},
        engine={"kind": "mocker", "config": configured},
    )
    taken = normalize_mocker_config(chart.config_text(values, pool))
    assert taken["engine"]["worker_type"] == pool
    assert taken["engine"]["max_model_len"] == 131072
    assert taken["engine"]["num_gpu_blocks"] == 1048576
    assert taken["dynamo"]["enable_local_indexer"] is True
    assert (taken["dp_size"], taken["startup_time"]) == (2, 0.5)


def test_the_parser_of_the_mocker_accepts_its_arguments(chart: Chart) -> None:
    taken = parse_args(chart.args(graph_values(model={"id": "a/b"}), "prefill"))
    assert (taken.model_path, taken.model_name) == ("a/b", "a/b")
    assert taken.is_prefill_worker
    assert str(taken.extra_engine_args) == "/etc/penstock/engine.json"


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_derived_keys_are_flags_of_vllm(chart: Chart, pool: str) -> None:
    known = {flag for option in load("vllm_flags.json")["options"] for flag in option["flags"]}
    values = graph_values(
        "vllm",
        model={"id": "a/b", "context_length": 4096, "revision": "main"},
        speculation={"method": "ngram"},
    )
    assert {f"--{key}" for key in chart.config(values, pool)} <= known
