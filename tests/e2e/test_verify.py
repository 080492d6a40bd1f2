"""`penstock verify` passes on a graph that runs as declared, else the right probe fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from tests.support.command_line import penstock
from tests.support.local_graphs import QUICKSTART, Up
from tests.support.outputs import read_output


def _report(process: GraphProcess, graph: Path, *more: str) -> dict[str, Any]:
    """`verify` of what runs in ``process`` against ``graph``; the exit code agrees with it."""
    done = process.penstock("verify", str(process.graph), "--graph", str(graph), "--json", *more)
    assert done.returncode in (0, 13), done.stderr
    report: dict[str, Any] = read_output("verify", done.stdout)
    assert report["ok"] == (done.returncode == 0)
    return report


def _failed(report: dict[str, Any]) -> dict[str, str]:
    """Name and text of the probes that fail."""
    return {
        probe["name"]: f"{probe['detail']}; {probe['hint']}"
        for probe in report["probes"]
        if probe["verdict"] == "fail"
    }


def _running(up: Up, folder: Path, text: str, *, sets: tuple[str, ...] = ()) -> GraphProcess:
    path = folder / "running.yaml"
    path.write_text(text)
    return up(path, *(word for value in sets for word in ("--set", value)))


def test_the_quickstart_is_verified(mockers: GraphProcess, tmp_path: Path) -> None:
    page = tmp_path / "verify.html"
    report = _report(mockers, QUICKSTART, "--report", str(page))
    assert report["ok"], report
    assert "Verified: no probe failed" in page.read_text("utf-8")
    assert {probe["name"] for probe in report["probes"] if probe["required"]} >= {"kv-events"}
    # With a URL alone there is nothing to compare with, and that fails no probe.
    done = mockers.penstock("verify", mockers.state()["endpoint"], "--json")
    verdicts = {p["name"]: p["verdict"] for p in read_output("verify", done.stdout)["probes"]}
    assert (verdicts["models"], verdicts["topology"]) == ("pass", "cannot tell")
    assert verdicts["greedy"] == "cannot tell"  # the output of a mocker is random
    assert "fail" not in verdicts.values()


def test_topology_fails_for_missing_and_for_surplus_workers(
    mockers: GraphProcess, tmp_path: Path
) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text(set_replicas(QUICKSTART.read_text(), {"prefill": 1, "decode": 2}))
    failed = _failed(_report(mockers, graph, "--only", "topology"))
    assert "prefill: 2 workers, expected 1" in failed["topology"]
    assert "decode: 1 workers, expected 2" in failed["topology"]


def test_cannot_tell_is_a_failure_for_a_probe_in_must_pass(
    mockers: GraphProcess, tmp_path: Path
) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text(QUICKSTART.read_text().replace("must_pass:", "must_pass:\n    - kv-transfer"))
    report = _report(mockers, graph, "--only", "kv-transfer")
    (probe,) = report["probes"]
    assert (probe["verdict"], probe["ok"], report["ok"]) == ("cannot tell", False, False)
    only = ("--only", "kv-transfer")
    text = mockers.penstock("verify", str(QUICKSTART), "--graph", str(graph), *only)
    assert text.returncode == 13
    assert "not verified: kv-transfer" in text.stderr


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param("router:\n  mode: round-robin\n", marks=pytest.mark.nightly),
        pytest.param("router:\n  mode: random\n", marks=pytest.mark.nightly),
        pytest.param("router:\n  kv_events: false\n", marks=pytest.mark.nightly),
        pytest.param("frontend:\n  replicas: 2\n", marks=pytest.mark.nightly),
    ],
)
def test_a_graph_that_runs_as_declared_fails_no_probe(up: Up, tmp_path: Path, changed: str) -> None:
    text = QUICKSTART.read_text().split("verify:")[0]
    process = _running(up, tmp_path, text + changed, sets=("decode.replicas=2",))
    done = process.penstock("verify", str(process.graph), "--set", "decode.replicas=2", "--json")
    assert (done.returncode, _failed(json.loads(done.stdout))) == (0, {}), done.stderr


@pytest.mark.nightly
@pytest.mark.destroys_graph
def test_a_scaled_graph_is_verified(up: Up, quickstart: Path) -> None:
    """`verify` waits until `up` has applied the edit; with several decode workers, the probe of
    the prefix cache repeats its request until one of them gets it twice."""
    process = up(quickstart)
    assert process.penstock("scale", str(quickstart), "decode=3", "prefill=1").returncode == 0
    done = process.penstock("verify", str(quickstart))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 prefill, 3 decode" in done.stdout


@pytest.mark.nightly
def test_a_mocker_instead_of_an_engine_fails_no_probe(up: Up) -> None:
    graph = QUICKSTART.parent / "gpt-oss-120b-b200-disagg.yaml"
    report = _report(up(graph, "--engine", "mocker"), graph)
    # Except the parsers: the mocker does not write Harmony.
    assert set(_failed(report)) <= {"reasoning-parser", "tool-call-parser"}, report


@pytest.mark.destroys_graph
def test_a_graph_with_other_flags_and_without_a_prefill_pool_fails_the_right_probes(
    up: Up, tmp_path: Path
) -> None:
    """The mocker's block size is only in its configuration; vLLM also exports it."""
    text = QUICKSTART.read_text()
    sized = "      block_size: {}\n      num_gpu_blocks"
    runs = text.replace("      num_gpu_blocks", sized.format(64)).replace("8192", "4096")
    process = _running(up, tmp_path, runs + "router:\n  mode: round-robin\n")
    graph = tmp_path / "graph.yaml"
    graph.write_text(runs)
    failed = _failed(_report(process, graph))
    assert "the router reports no KV hit rate" in failed["kv-routing"]
    assert set(failed) <= {"kv-routing", "kv-events", "prefix-cache"}  # its consequences

    graph.write_text(text.replace("      num_gpu_blocks", sized.format(32)))
    only = ("--only", "block-size", "--only", "context-length")
    failed = _failed(_report(process, graph, *only))
    assert "router 64, graph 32" in failed["block-size"]
    assert (
        "context length: 8192 tokens in the graph, 4096 in the frontend" in failed["context-length"]
    )

    process.penstock("scale", str(process.graph), "prefill=0")
    process.wait_counts(prefill=0)
    failed = _failed(_report(process, QUICKSTART, "--only", "topology", "--only", "models"))
    assert "prefill: 0 workers, expected 2" in failed["topology"]
    assert "The prefill pool is missing" in failed["models"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("changed", "probe", "words"),
    [
        ("router:\n  kv_events: false\n", "kv-events", "the router predicts from requests"),
        (
            "frontend:\n  migration_limit: 0\n",
            "migration",
            "migration limit is 3 in the graph, 0 in the frontends",
        ),
    ],
)
def test_a_frontend_with_other_flags_fails_the_right_probe(
    up: Up, tmp_path: Path, changed: str, probe: str, words: str
) -> None:
    process = _running(up, tmp_path, QUICKSTART.read_text() + changed)
    failed = _failed(_report(process, QUICKSTART))
    assert words in failed[probe]
    assert set(failed) <= {probe, "kv-events", "prefix-cache"}  # its consequences


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ("http://127.0.0.1:9",),
            13,
            "http://127.0.0.1:9: nothing listens there: connection refused. "
            "Fix: Start the graph with `penstock up GRAPH`",
        ),
        (("http://no-such-host.invalid",), 13, "host name no-such-host.invalid is not known"),
        (("nowhere.yaml",), 3, "nowhere.yaml"),
        ((str(QUICKSTART),), 11, "is not up"),
        (("http://127.0.0.1:9", "--only", "topolgy"), 2, "'topolgy' is not one of models"),
        (("http://[::1", "--only", "models"), 3, "is not a URL"),
        (("127.0.0.1:9",), 3, "Write http:// or https://"),
        (("http://127.0.0.1:9", "--metrics", "foo"), 3, "'foo' is not a URL"),
        (("http://127.0.0.1:9", "--log", "nowhere.log"), 3, "nowhere.log: no such file"),
        (("http://127.0.0.1:9", "--model-dir", "nowhere"), 3, "nowhere/config.json"),
        (("http://127.0.0.1:9", "--set", "a=b"), 3, "--set needs --graph"),
    ],
)
def test_a_target_that_cannot_be_verified_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    done = penstock("verify", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 or code == 2
