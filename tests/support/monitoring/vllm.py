"""Check against a running vLLM that rules and dashboards have values (e2e/test_cpu_engine.py)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.monitoring.files import metric_names, queries, rules
from tests.support.monitoring.live import LiveGraph, Prometheus
from tests.support.monitoring.names import trtllm

# Decode fetches and counts the transfers; prefill publishes the events.
ABSENT = {"prefill": ("NIXL",), "decode": ("KV events",)}


def assert_panels_and_rules_have_values(graph: LiveGraph, folder: Path) -> None:
    """``graph``: one worker each of prefill and decode, vLLM with NIXL, and a frontend."""
    with Prometheus(folder, graph.addresses()) as prometheus:
        prometheus.wait(lambda: len(prometheus.query("up == 1")) == 3)
        for _ in range(10):
            assert graph.ask(8) == 200
        prometheus.wait(
            lambda: bool(prometheus.query("rate(vllm:nixl_xfer_time_seconds_count[1m]) > 0"))
        )
        _assert_values(prometheus)
        assert not prometheus.firing() & {"PenstockKvTransferStopped", "PenstockPrefillBypassed"}


def _assert_values(prometheus: Prometheus) -> None:
    used = set().union(*(metric_names(rule["expr"]) for rule in rules()))
    for pool in ("prefill", "decode"):
        for title, expression in queries("pools.json", pool).items():
            used |= metric_names(expression)
            if metric_names(expression) & trtllm() or any(w in title for w in ABSENT[pool]):
                continue
            # The rate of a new series needs a second sample.
            prometheus.wait(partial(_has_values, prometheus, expression), (pool, title))
    for name in {n for n in used if n.startswith(("vllm:", "dynamo_component_gpu_cache"))}:
        assert prometheus.query(name), name


def _has_values(prometheus: Prometheus, expression: str) -> bool:
    return bool(prometheus.query(expression))
