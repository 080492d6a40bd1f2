"""The CRD, including its CEL rules, accepts every rendered DynamoGraphDeployment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.charts import CRD, Chart, graph_values
from tests.support.kubernetes_schemas import crd

pytestmark = pytest.mark.needs("crds")

FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {
        "model": {
            "id": "a/b",
            "path": "/models/b",
            "served_name": "b",
            "revision": "main",
            "context_length": 4096,
            "cache": {"pvc": "cache", "mount_path": "/models"},
            "token_secret": "hf",
        },
        "frontend": {
            "replicas": 2,
            "port": 9000,
            "resources": {"cpu": "4", "memory": "8Gi"},
            "annotations": {"a": "b"},
        },
        "router": {"temperature": 0.5, "min_initial_workers": 2},
        "pod": {
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
        "env": {"A": "b"},
    },
    "own images": {"engine": {"image": "registry.local:5000/dynamo@sha256:" + "0" * 64}},
    "etcd and nats": {
        "infrastructure": {
            "discovery": "etcd",
            "etcd_endpoints": ["http://etcd:2379"],
            "events": "nats",
            "requests": "nats",
            "nats_url": "nats://nats:4222",
        }
    },
}
POOL: dict[str, Any] = {"replicas": 3, "shared_memory": "16Gi", "pod": {"hostIPC": True}}
ON_GPUS: dict[str, dict[str, Any]] = {
    "eagle": {"speculation": {"method": "eagle3", "draft_model": "x/y"}},
    "several nodes": {"pools": {**POOL, "gpus": 8, "nodes": 2}},
}


@pytest.mark.parametrize("shape", ["disagg", "agg"])
@pytest.mark.parametrize("kind", ["mocker", "trtllm", "vllm", "sglang"])
def test_every_engine_and_feature_fits_the_crd(chart: Chart, kind: str, shape: str) -> None:
    features = FEATURES | (ON_GPUS if kind != "mocker" else {})
    names = ("prefill", "decode") if shape == "disagg" else ("worker",)
    for feature in features.values():
        sections = {"pools": POOL, **feature}
        pools = dict.fromkeys(names, sections.pop("pools"))
        values = graph_values(kind, shape=shape, **sections, **pools)
        assert crd.problems(CRD, chart.dgd(values)) == []


@pytest.mark.parametrize("kind", ["trtllm", "vllm", "sglang"])
@pytest.mark.parametrize("fabric", ["ib", "roce", "efa", "mnnvl", "none"])
def test_every_fabric_fits_the_crd(chart: Chart, kind: str, fabric: str) -> None:
    values = graph_values(kind, hardware={"fabric": fabric})
    assert crd.problems(CRD, chart.dgd(values)) == []
