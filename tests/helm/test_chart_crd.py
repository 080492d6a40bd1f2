"""Every DynamoGraphDeployment we render is one that the CRD accepts, unknown fields forbidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from penstock.manifests.render import Loader

from .charts import CRD, Chart, graph_values


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    if not CRD.exists():
        pytest.skip(f"no {CRD}: the CRD is not part of this repository")
    crd = yaml.load(CRD.read_text("utf-8"), Loader)
    (version,) = (v for v in crd["spec"]["versions"] if v["name"] == "v1beta1")
    return jsonschema.Draft202012Validator(closed(version["schema"]["openAPIV3Schema"]))


def closed(schema: Any) -> Any:
    """A structural schema as JSON schema: no unknown fields, int-or-string as both types."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    open_ended = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"}
    if isinstance(schema.get("properties"), dict) and not open_ended & schema.keys():
        result["additionalProperties"] = False
    if schema.get("properties", {}).keys() == {"name"} and schema.get("type") != "object":
        result.pop("additionalProperties", None)  # a property that is called `properties`
    return result


def errors(validator: jsonschema.Draft202012Validator, dgd: object) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(dgd)]


def test_the_closed_schema_refuses_a_misspelt_field(
    validator: jsonschema.Draft202012Validator, chart: Chart
) -> None:
    dgd = chart.dgd(graph_values())
    dgd["spec"]["components"][0]["podTemplate"]["spec"]["tolerationz"] = []
    assert errors(validator, dgd)


def test_graphs_of_the_repository_fit_the_crd(
    validator: jsonschema.Draft202012Validator, chart: Chart, graph_file: Path
) -> None:
    assert errors(validator, chart.dgd(yaml.safe_load(graph_file.read_text("utf-8")))) == []


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
def test_every_engine_and_feature_fits_the_crd(
    validator: jsonschema.Draft202012Validator, chart: Chart, kind: str, shape: str
) -> None:
    features = FEATURES | (ON_GPUS if kind != "mocker" else {})
    names = ("prefill", "decode") if shape == "disagg" else ("worker",)
    for feature in features.values():
        sections = {"pools": POOL, **feature}
        pools = dict.fromkeys(names, sections.pop("pools"))
        values = graph_values(kind, shape=shape, **sections, **pools)
        assert errors(validator, chart.dgd(values)) == []


@pytest.mark.parametrize("kind", ["trtllm", "vllm", "sglang"])
@pytest.mark.parametrize("transport", ["rdma", "tcp"])
def test_every_transport_fits_the_crd(
    validator: jsonschema.Draft202012Validator, chart: Chart, kind: str, transport: str
) -> None:
    values = graph_values(kind, kv_transfer={"transport": transport})
    assert errors(validator, chart.dgd(values)) == []
