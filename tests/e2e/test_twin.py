"""`up --timing model`: live mockers with replayed engines, and the comparison that it prints."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.replay import require_environment
from penstock.simulate.replayable import replayable
from tests.e2e.chats import post
from tests.support.local_graphs import ROOT, Up

pytestmark = pytest.mark.needs("sim")
DISAGG = ROOT / "dynamo_graphs" / "gpt-oss-120b-b200-disagg.yaml"
TIMED = ("--engine", "mocker", "--timing", "model", "--speed")
PARSED = """
import json, sys
from dynamo.mocker.args import parse_args
from dynamo.mocker.config import load_mocker_engine_args, normalize_mocker_config
argv, replayed = json.load(sys.stdin)
print(json.dumps([load_mocker_engine_args(parse_args(argv)), normalize_mocker_config(replayed)]))
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "twin.yaml"
    text = DISAGG.read_text()
    for before, after in (
        ("  replicas: 4\n", "  replicas: 1\n"),
        ("frontend: {replicas: 2,", "frontend: {replicas: 1,"),
    ):
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)
    return path


def parsed(process: GraphProcess, pool: str, replayed: Any) -> tuple[Any, Any]:
    """The configuration of the pool's mocker, and that of the replayed engine."""
    (pid, *_) = process.pids(pool)
    argv = psutil.Process(pid).cmdline()
    asked = json.dumps([argv[argv.index("dynamo.mocker") + 1 :], replayed])
    command = [str(require_environment()), "-c", PARSED]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    live, simulated = json.loads(done.stdout.splitlines()[-1])
    return live, simulated


def test_a_twin_runs_the_replayed_engines_and_prints_the_comparison(up: Up, graph: Path) -> None:
    process = up(graph, *TIMED, "2", envoy=True)
    deployment = replayable(open_source(graph, ()), Hints())
    for pool in deployment.pools:
        live, simulated = parsed(process, pool.names[0], dict(pool.engine))
        assert live["engine"].pop("timing_model") == simulated["engine"].pop("timing_model")
        differ = {k for k, v in simulated["engine"].items() if live["engine"][k] != v}
        assert differ == {"max_model_len", "speedup_ratio", "kv_transfer_bandwidth"}
        assert live["dynamo"].pop("enable_local_indexer")
        assert not simulated["dynamo"].pop("enable_local_indexer")
        del live["engine"], simulated["engine"]
        assert live == simulated

    body = {"prompt": list(range(100, 164)), "max_tokens": 5, "ignore_eos": True}
    usage = post(process, "completions", **body).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (64, 5)

    process.wait_for(lambda _: "twin: 24 requests, live" in process.log.read_text())
    assert "in simulated time at 2 × speed: TTFT p50" in process.log.read_text()


@pytest.mark.nightly
@pytest.mark.destroys_graph
def test_a_twin_applies_edits_of_replicas_and_of_limits(up: Up, graph: Path) -> None:
    process = up(graph, *TIMED, "2", envoy=True)
    before = process.pids("prefill")
    assert process.penstock("scale", str(graph), "prefill=2").returncode == 0
    process.wait_counts(prefill=2)
    assert set(before) <= set(process.pids("prefill"))

    text = graph.read_text()
    assert "max_batch_size: 64 " in text
    graph.write_text(text.replace("max_batch_size: 64 ", "max_batch_size: 32 "))
    process.wait_for(lambda s: not set(before) & {r["pid"] for r in s["replicas"]}, 90)
    process.wait_counts(prefill=2, decode=1)
    live, _ = parsed(process, "prefill", {})
    assert live["engine"]["max_num_seqs"] == 32


@pytest.mark.nightly
@pytest.mark.destroys_graph
def test_ctrl_c_stops_a_twin_during_its_comparison(up: Up, graph: Path) -> None:
    process = up(graph, *TIMED, "0.01", envoy=True)  # 24 requests would take a quarter of an hour
    assert process.stop(signal.SIGINT) == 130
    assert "twin:" not in process.log.read_text()
