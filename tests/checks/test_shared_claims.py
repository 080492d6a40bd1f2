"""Which pods of a file mount a claim that only one node can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from penstock.checks.finding import Finding, Level
from tests.checks.own_manifests import alpha, claim, with_document
from tests.checks.support import check, trtllm_agg_dgd

CLAIM = claim("ReadWriteOnce")
MOUNT = {"volumeMounts": [{"name": "other"}, {"name": "model-cache"}]}
VOLUME = {"name": "models", "persistentVolumeClaim": {"claimName": "model-cache"}}
POD = {"containers": [{"name": "main", "image": "registry.example/tool:1"}], "volumes": [VOLUME]}


def found(text: str) -> list[Finding]:
    return [finding for finding in check(text) if finding.rule == "PS713"]


def workload(kind: str, namespace: str | None = None, **spec: Any) -> Mapping[str, Any]:
    metadata = {"name": "tool"} if namespace is None else {"name": "tool", "namespace": namespace}
    template = {"template": {"metadata": {"labels": {"app": "tool"}}, "spec": POD}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": {"app": "tool"}}, **template, **spec},
    }


def test_the_pods_of_all_graphs_count_once_at_a_place_of_the_file() -> None:
    first, second = alpha(MOUNT), alpha({**MOUNT, "replicas": 3})
    other = yaml.safe_load(second)
    other["metadata"]["name"] = "second"
    text = with_document(with_document(first, other), CLAIM)
    (finding,) = found(text)
    assert finding.level is Level.WARNING
    assert finding.message == "model-cache is ReadWriteOnce, but 4 pods mount it"
    assert finding.place == "spec.services.Worker.volumeMounts[1]"
    assert finding.line is not None
    assert "name: model-cache" in text.splitlines()[finding.line - 1]


@pytest.mark.parametrize(
    ("other", "count"),
    [
        (workload("Deployment", replicas=2), 3),
        (workload("Deployment", namespace="elsewhere"), 2),  # an object without a namespace
        (workload("Job"), None),  # it may end before the worker starts
    ],
)
def test_pods_of_other_objects_count(other: Mapping[str, Any], count: int | None) -> None:
    text = with_document(with_document(alpha(MOUNT), other), CLAIM)
    messages = [finding.message for finding in found(text)]
    expected = f"model-cache is ReadWriteOnce, but {count} pods mount it"
    assert messages == ([] if count is None else [expected])


def test_a_claim_of_another_namespace_is_another_claim() -> None:
    elsewhere = {**CLAIM, "metadata": {"name": "model-cache", "namespace": "b"}}
    other = workload("Deployment", namespace="a", replicas=2)
    assert found(with_document(with_document(alpha(MOUNT), other), elsewhere)) == []


def test_the_place_of_a_volume_is_the_pods_volumes() -> None:
    (finding,) = found(with_document(trtllm_agg_dgd(), CLAIM))
    assert finding.place.endswith("podTemplate.spec.volumes")
