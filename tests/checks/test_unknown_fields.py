"""The fixes of fields that the CRD of the operator does not have."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock.checks.finding import Finding
from tests.checks.own_manifests import alpha
from tests.checks.support import check, vllm_agg_dgd

WORKER = "spec.services.Worker"
PROBE = {"httpGet": {"path": "/health", "port": 9090}}


def unknown_field(text: str) -> Finding:
    (finding,) = [finding for finding in check(text) if finding.rule == "PS768"]
    return finding


@pytest.mark.parametrize(
    ("name", "fix", "amounts"),
    [
        ("nvidia.com/gpu", "Rename it to gpu.", {"gpu": "1"}),
        (
            "gpu.intel.com/xe",
            "Rename it to gpu, and set gpuType to gpu.intel.com/xe.",
            {"gpu": "1", "gpuType": "gpu.intel.com/xe"},
        ),
        (
            "rdma/ib",
            f"Move it to {WORKER}.resources.limits.custom, where resources other than cpu and "
            "memory are.",
            {"custom": {"rdma/ib": "1"}},
        ),
        ("memry", "Use memory.", None),
        ("gpus", "Use gpu.", None),
    ],
)
def test_a_resource_of_v1alpha1(name: str, fix: str, amounts: Any) -> None:
    finding = unknown_field(alpha({"resources": {"limits": {"cpu": "4", name: 1}}}))
    assert finding.fix == fix
    resources = {"resources": {"limits": amounts}}
    assert yaml.safe_load(finding.yaml or "{}") == (
        {"spec": {"services": {"Worker": resources}}} if amounts else {}
    )


def test_a_claim_of_a_component_becomes_a_claim_of_the_deployment_with_a_mount() -> None:
    claim = {"create": False, "name": "models", "mountPoint": "/models"}
    finding = unknown_field(alpha({"pvc": claim}))
    assert finding.message == f"'pvc' is not a field of {WORKER} since operator 0.6"
    assert finding.fix == (
        "List the claim models in spec.pvcs, and mount it at /models with volumeMounts of Worker."
    )
    assert yaml.safe_load(finding.yaml) == {
        "spec": {
            "pvcs": [{"create": False, "name": "models"}],
            "services": {"Worker": {"volumeMounts": [{"name": "models", "mountPoint": "/models"}]}},
        }
    }
    # A list would replace that of the file.
    assert not unknown_field(alpha({"pvc": claim}, {"pvcs": [{"name": "x"}]})).yaml


@pytest.mark.parametrize(
    ("worker", "fix"),
    [
        (
            {"startupProbe": PROBE},
            f"Move it to {WORKER}.extraPodSpec.mainContainer, which has startupProbe.",
        ),
        (  # its own fields slipped, too
            {"startupProbe": {"httpGet": {**PROBE["httpGet"], "periodSeconds": 5}}},
            f"Move it to {WORKER}.extraPodSpec.mainContainer, which has startupProbe.",
        ),
        (
            {"livenessProbe": PROBE, "periodSeconds": 5},
            f"Move it to {WORKER}.livenessProbe, which has periodSeconds.",
        ),
        ({"requests": {"cpu": "4"}}, f"Move it to {WORKER}.resources, which has requests."),
        ({"env": [{"name": "A", "value": "1"}]}, "Use envs."),
        (
            {"max-num-seqs": 64},
            "Remove it, and pass it to the program as a flag: `--max-num-seqs 64`.",
        ),
        ({"max-local-prefill-length": 64}, "Remove it."),
        ({"tensorParallel": 4}, "Remove it."),
    ],
)
def test_a_field_at_another_place(worker: dict[str, Any], fix: str) -> None:
    assert unknown_field(alpha(worker)).fix == fix


def test_a_similar_field_takes_the_value() -> None:
    """`resources` is similar to resourceClaims, but takes a mapping."""
    text = alpha({}, resourceClaims=[{"name": "channel"}])
    assert unknown_field(text).fix == (
        f"Move it to {WORKER}.extraPodSpec, which has resourceClaims."
    )


@pytest.mark.parametrize(
    ("name", "field", "fix"),
    [
        ("componentType", "worker", "Use type."),
        ("nodeSelector", {"a": "b"}, "podTemplate.spec, which has nodeSelector."),
        ("volumeMounts", [], "podTemplate.spec.containers[0], which has volumeMounts."),
    ],
)
def test_a_field_of_v1alpha1_in_v1beta1(name: str, field: Any, fix: str) -> None:
    text = vllm_agg_dgd({f"dgd/spec/components/worker/{name}": field})
    assert unknown_field(text).fix.endswith(fix)
