"""`penstock up` on a machine with four GPUs: a driver built for the test, which the real NVML
binding loads, and an environment vllm whose Python runs scripted workers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from penstock.drill.graph_process import GraphProcess
from penstock.errors import MissingToolError
from penstock.graph.edit import set_replicas
from penstock.tokenizer import FOLDER
from tests.e2e.chats import post
from tests.support.fake_nvml import FakeGpu, build_driver, write_driver
from tests.support.local_graphs import running_graph

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.destroys_graph]
WORKER = Path(__file__).with_name("scripted_worker.py")
RTX = FakeGpu(name="NVIDIA GeForce RTX 4090", memory_gib=24)
GRAPH = {
    "model": {"id": "acme/scripted", "path": str(FOLDER), "context_length": 2048},
    "engine": {"kind": "vllm", "config": {"max-num-seqs": 8}},
    "worker": {"replicas": 2, "gpus": 1},
    "drain_timeout_s": 10,
}
INTERPRETER = """#!/bin/sh
exec {python} {worker} --model-path {model} --model-name acme/scripted --script {script}
"""


def machine(folder: Path) -> dict[str, str]:
    """The variables of a machine with four GPUs and the environment vllm."""
    env = build_driver(folder)
    write_driver(folder, [RTX] * 4)
    script = folder / "script.yaml"
    script.write_text(yaml.safe_dump({"any": "from a GPU"}))
    interpreter = folder / "environments" / "vllm" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(
        INTERPRETER.format(python=sys.executable, worker=WORKER, model=FOLDER, script=script)
    )
    interpreter.chmod(0o755)
    (interpreter.parents[1] / "installed.txt").write_text("")
    return env | {"PENSTOCK_ENVIRONMENTS": str(folder / "environments")}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphProcess]:
    """Two workers on four GPUs; the tests run in the order of this file."""
    folder = tmp_path_factory.mktemp("gpus")
    path = folder / "graph.yaml"
    path.write_text(yaml.safe_dump(GRAPH))
    arguments = ("--port", "0", "--skip-check")
    with running_graph(path, folder, *arguments, env=machine(folder)) as process:
        yield process


def gpus(graph: GraphProcess) -> dict[str, str]:
    """Replica → the CUDA_VISIBLE_DEVICES of its running process, which status must report too."""
    found = {}
    for row in graph.state()["replicas"]:
        if row["program"] == "worker" and row["state"] == "ready":
            env = psutil.Process(row["pid"]).environ()
            assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
            assert ",".join(map(str, row["gpus"])) == env["CUDA_VISIBLE_DEVICES"]
            found[row["name"]] = env["CUDA_VISIBLE_DEVICES"]
    return found


def edit(graph: GraphProcess, **changes: Any) -> None:
    content = yaml.safe_load(graph.graph.read_text())
    content["engine"]["config"] |= changes
    graph.graph.write_text(yaml.safe_dump(content))


def scale(graph: GraphProcess, replicas: int) -> None:
    graph.graph.write_text(set_replicas(graph.graph.read_text(), {"worker": replicas}))
    graph.wait_counts(worker=replicas)


def test_a_second_graph_gets_other_gpus_or_a_refusal_that_says_who_has_them(
    graph: GraphProcess,
) -> None:
    folder = graph.graph.parent
    other = folder / "other.yaml"
    other.write_text(yaml.safe_dump({**GRAPH, "worker": {"replicas": 3, "gpus": 1}}))
    write_driver(folder, [RTX, RTX, RTX, FakeGpu(memory_gib=24, used_gib=20, processes={99: 20})])
    refused = graph.penstock("up", str(other), "--port", "0", "--skip-check")
    assert refused.returncode == MissingToolError.exit_code
    assert (
        f"{other}: not enough free GPUs: worker 3 × 1 = 3 GPUs, this machine has 4 "
        "(3 × NVIDIA GeForce RTX 4090 24 GiB and 1 × NVIDIA H200 24 GiB); "
        f"GPU 0: reserved by {graph.graph}; GPU 1: reserved by {graph.graph}; "
        "GPU 3: 20.0 GiB of 24.0 GiB are in use by pid 99 (20.0 GiB). "
        "Fix: Set `worker.replicas=1` (in the file or with --set), or run "
        f"`penstock up {other} --engine mocker`."
    ) in refused.stderr
    write_driver(folder, [RTX] * 4)
    assert gpus(graph) == {"worker.0": "0", "worker.1": "1"}


def test_each_worker_has_its_own_gpu_through_scale_kill_and_rolling_update(
    graph: GraphProcess,
) -> None:
    assert gpus(graph) == {"worker.0": "0", "worker.1": "1"}
    assert "worker: running vllm on this machine's GPUs, 1 for each" in graph.log.read_text()
    answer = post(graph, "completions", prompt="x", max_tokens=8).json()
    assert answer["choices"][0]["text"] == "from a GPU"

    killed = graph.pids("worker")[0]
    os.kill(killed, signal.SIGKILL)
    graph.wait_for(lambda s: killed not in [r["pid"] for r in s["replicas"]])
    graph.wait_counts(worker=2)
    assert gpus(graph) == {"worker.0": "0", "worker.1": "1"}

    scale(graph, 3)
    assert gpus(graph) == {"worker.0": "0", "worker.1": "1", "worker.2": "2"}
    [listed] = json.loads(graph.penstock("ls", "--json").stdout)
    assert listed["gpus"] == [0, 1, 2]

    edit(graph, **{"max-num-seqs": 16})  # three more while three serve
    rejected = graph.wait_for(lambda s: s["rejected_edit"])["rejected_edit"][0]
    assert (
        "not enough free GPUs: worker 3 × 1 = 3 GPUs, and the workers that serve until these are "
        "ready keep 3, this machine has 4 (4 × NVIDIA GeForce RTX 4090 24 GiB). "
        "Fix: Run `penstock down"
    ) in rejected
    assert len(gpus(graph)) == 3

    edit(graph, **{"max-num-seqs": 8})
    scale(graph, 2)
    old = set(graph.pids("worker"))
    edit(graph, **{"max-num-seqs": 16})
    graph.wait_for(lambda s: not old & {r["pid"] for r in s["replicas"]})
    graph.wait_counts(worker=2)
    assert sorted(gpus(graph).values()) == ["2", "3"]
