"""Built-in kinds: each check has an object that breaks it and a near miss."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.kubernetes_schemas.builtin import VERSIONS, is_builtin, problems
from tests.support.kubernetes_schemas.dgd import SAMPLES_FILE
from tests.support.kubernetes_schemas.edit import edited

SAMPLES = list(yaml.safe_load_all(SAMPLES_FILE.read_text("utf-8")))
BY_KIND = {sample["kind"]: sample for sample in reversed(SAMPLES)}  # the first of each kind
MAIN = "spec/template/spec/containers/0"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s['kind']}-{s['metadata']['name']}")
def test_a_valid_object_is_accepted(sample: dict[str, Any], version: str) -> None:
    assert is_builtin(sample)
    assert problems(sample, version) == []
    kubernetes_validate.validate(sample, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelled_field_is_rejected_by_the_schema_of_every_version(version: str) -> None:
    broken = edited(BY_KIND["Deployment"], {f"{MAIN}/volumeMount": []})
    (problem,) = problems(broken, version)
    place = "Deployment/web spec.template.spec.containers[0].volumeMount"
    assert problem == f"{place}: unknown field"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("Deployment", "extensions/v1beta1"),
        ("Deployment", "apps.example.com/v1"),
        ("PodDisruptionBudget", "policy/v1beta1"),
        ("Deploymnet", "apps/v1"),
    ],
)
def test_a_kind_missing_in_this_kubernetes_version_is_rejected(kind: str, api_version: str) -> None:
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}
    (problem,) = problems(manifest, "1.33")
    assert problem == f"{kind}/a kind: Kubernetes 1.33 has no {kind} in {api_version}"


@pytest.mark.parametrize("api_version", ["nvidia.com/v1beta1", "gateway.networking.k8s.io/v1"])
def test_custom_resources_are_distinguished(api_version: str) -> None:
    assert not is_builtin({"apiVersion": api_version, "kind": "X"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{MAIN}/env/-": {"name": "LEVEL", "value": "x"}}, "second LEVEL"),
        ({f"{MAIN}/readinessProbe/httpGet/port": "htpp"}, "'htpp' is not a port of the container"),
        ({f"{MAIN}/lifecycle/preStop/httpGet/port": "x"}, "is not a port of the container"),
    ],
)
def test_what_an_api_server_accepts_although_it_cannot_work_is_a_problem(
    change: dict[str, Any], message: str
) -> None:
    """What it refuses is in tests/kubernetes/cluster/refusals.yaml."""
    (problem,) = problems(edited(BY_KIND["Deployment"], change), "1.33")
    assert message in problem
