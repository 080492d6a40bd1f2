"""Built-in kinds: each check has an object that breaks it and a near miss."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.kubernetes_schemas.builtin import VERSIONS, is_builtin, problems, validator
from tests.support.kubernetes_schemas.dgd import SAMPLES_FILE
from tests.support.kubernetes_schemas.edit import REMOVED, edited
from tests.support.kubernetes_schemas.pods import pod_problems, templates

SAMPLES = list(yaml.safe_load_all(SAMPLES_FILE.read_text("utf-8")))
BY_KIND = {sample["kind"]: sample for sample in reversed(SAMPLES)}  # the first of each kind
MAIN = "spec/template/spec/containers/0"
POD = "spec/template/spec"


def of(kind: str, changes: dict[str, Any]) -> list[str]:
    return problems(edited(BY_KIND[kind], changes), "1.33")


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


LONG = "a" * 63
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    # (kind, breaking change, part of the message, near miss)
    ("ConfigMap", {"metadata/name": "A"}, "does not match", {"metadata/name": "a.b-1"}),
    ("ConfigMap", {"metadata/name": "a_b"}, "does not match", {"metadata/name": "1a"}),
    ("ConfigMap", {"metadata/name": "a" * 254}, "at most 253", {"metadata/name": "a" * 253}),
    ("ConfigMap", {"metadata/name": REMOVED}, "None", {"metadata/name": "x"}),
    ("Service", {"metadata/name": "1a"}, "does not match", {"metadata/name": "a1"}),
    ("Service", {"metadata/name": "a.b"}, "does not match", {"metadata/name": "a-b"}),
    ("Service", {"metadata/name": LONG + "a"}, "at most 63", {"metadata/name": LONG}),
    ("StatefulSet", {"metadata/name": "a" * 53}, "at most 52", {"metadata/name": "a" * 52}),
    ("StatefulSet", {"metadata/name": "a.b"}, "does not match", {"metadata/name": "a-b"}),
    ("Job", {"metadata/name": LONG + "a"}, "at most 63", {"metadata/name": LONG}),
    ("Role", {"metadata/name": "a/b"}, "does not match", {"metadata/name": "System:A"}),
    ("Job", {"metadata/namespace": "a.b"}, "does not match", {"metadata/namespace": "a-b"}),
    ("Job", {"metadata/labels": {"a": "b c"}}, "label value", {"metadata/labels": {"a": "b_C.d"}}),
    ("Job", {"metadata/labels": {"a": "b-"}}, "label value", {"metadata/labels": {"a": ""}}),
    ("Job", {"metadata/labels": {"a": LONG + "a"}}, "at most 63", {"metadata/labels": {"a": LONG}}),
    ("Job", {"metadata/labels": {"a/b/c": "d"}}, "label key", {"metadata/labels": {"a.b/c": "d"}}),
    ("Job", {"metadata/labels": {"/a": "d"}}, "label key", {"metadata/labels": {"a": "d"}}),
    ("Job", {f"{POD}/nodeSelector": {"a": "b c"}}, "label value", {f"{POD}/nodeSelector": {}}),
    (
        "Job",
        {"metadata/annotations": {"a b": "c"}},
        "annotation key",
        {"metadata/annotations": {"A.com/b": "any thing\n"}},
    ),
    (
        "Job",
        {"metadata/annotations": {"a": "b" * 2**18}},
        "longer than",
        {"metadata/annotations": {"a": "b" * 2**17}},
    ),
    ("ConfigMap", {"data": {"a/b": "c"}}, "file name", {"data": {"_a.B-": "c"}}),
    ("ConfigMap", {"data": {"..": "c"}}, "file name", {"data": {".a": "c"}}),
    ("ConfigMap", {"data": {"a": "b" * (2**20 + 1)}}, "bytes", {"data": {"a": "b" * 2**20}}),
    (
        "ConfigMap",
        {"binaryData": {"LEVEL": "YQ=="}},
        "in binaryData as well",
        {"binaryData": {"b": "YQ=="}},
    ),
    (
        "Deployment",
        {"spec/selector/matchLabels/app": "www"},
        "selector does not match",
        {"spec/selector/matchLabels": {"tier": "front"}},
    ),
    (
        "Deployment",
        {"spec/selector/matchExpressions/0/operator": "NotIn"},
        "selector does not match",
        {"spec/selector/matchExpressions/0": {"key": "x", "operator": "DoesNotExist"}},
    ),
    (
        "Deployment",
        {"spec/selector/matchExpressions/0/operator": "in"},
        "operator 'in'",
        {"spec/selector/matchExpressions/0": {"key": "app", "operator": "Exists"}},
    ),
    (
        "Deployment",
        {"spec/selector/matchExpressions/0/operator": "Exists"},
        "takes no values",
        {"spec/selector/matchExpressions": REMOVED},
    ),
    (
        "StatefulSet",
        {"spec/template/metadata": REMOVED},
        "selector does not match",
        {"spec/template/metadata/labels/more": "x"},
    ),
    ("StatefulSet", {"spec/selector": {}}, "selects nothing", {}),
    ("Deployment", {f"{MAIN}/volumeMounts/0/name": "x"}, "no volume is named 'x'", {}),
    ("StatefulSet", {"spec/volumeClaimTemplates": REMOVED}, "no volume is named 'disk'", {}),
    (
        "Deployment",
        {f"{MAIN}/volumeMounts/0/mountPath": "/cache"},
        "second mount at /cache",
        {f"{MAIN}/volumeMounts/0/mountPath": "/cache/a"},
    ),
    (
        "Deployment",
        {f"{POD}/volumes/-": {"name": "shm", "emptyDir": {}}},
        "second volume shm",
        {f"{POD}/volumes/-": {"name": "shm2", "emptyDir": {}}},
    ),
    (
        "Deployment",
        {f"{POD}/volumes/-": {"name": "Tmp", "emptyDir": {}}},
        "volume name",
        {f"{POD}/volumes/-": {"name": "tmp", "emptyDir": {}}},
    ),
    (
        "Deployment",
        {f"{MAIN}/env/-": {"name": "LEVEL", "value": "x"}},
        "second LEVEL",
        {f"{MAIN}/env/-": {"name": "level", "value": "x"}},
    ),
    ("Deployment", {f"{MAIN}/env/0/value": "x"}, "value and valueFrom", {f"{MAIN}/env": []}),
    ("Deployment", {f"{MAIN}/name": "Main"}, "container name", {f"{MAIN}/name": "1-main"}),
    ("Deployment", {f"{MAIN}/name": "fetch"}, "second container", {f"{MAIN}/name": "fetch2"}),
    (
        "Deployment",
        {f"{MAIN}/ports/1/name": "sixteen-letters-"[:15] + "x"},
        "at most 15",
        {f"{MAIN}/ports/1/name": "fifteen-letters"},
    ),
    ("Deployment", {f"{MAIN}/ports/1/name": "a--b"}, "port name", {f"{MAIN}/ports/1/name": "a-b"}),
    ("Deployment", {f"{MAIN}/ports/1/name": "80"}, "port name", {f"{MAIN}/ports/1/name": "80a"}),
    ("Deployment", {f"{MAIN}/ports/1/name": "http"}, "second port http", {}),
    (
        "Deployment",
        {f"{MAIN}/ports/1/containerPort": 65536},
        "not a port number",
        {f"{MAIN}/ports/1/containerPort": 65535},
    ),
    (
        "Deployment",
        {f"{MAIN}/readinessProbe/httpGet/port": "htpp"},
        "port 'htpp' is not a port of the container",
        {f"{MAIN}/readinessProbe/httpGet/port": 1},
    ),
    (
        "Deployment",
        {f"{MAIN}/lifecycle/preStop/httpGet/port": "drain"},
        "is not a port of the container",
        {f"{MAIN}/lifecycle/preStop": {"exec": {"command": ["a"]}}},
    ),
    ("Deployment", {f"{MAIN}/livenessProbe/tcpSocket/port": 0}, "not a port number", {}),
    *(
        (
            "Deployment",
            {f"{MAIN}/resources/requests/memory": bad},
            message,
            {f"{MAIN}/resources/requests/memory": good},
        )
        for bad, message, good in (
            ("1GB", "is not a quantity", "1G"),
            ("1gi", "is not a quantity", "1.5Gi"),
            ("1 Gi", "is not a quantity", "1e9"),
            ("", "is not a quantity", "0.5"),
            ("-1Gi", "is negative", 1024),
            ("3Gi", "is above the limit 2Gi", "2048Mi"),
        )
    ),
    (
        "Deployment",
        {f"{MAIN}/resources/requests/nvidia.com~1gpu": 2},
        "needs an equal limit",
        {f"{MAIN}/resources/requests/nvidia.com~1gpu": "1"},
    ),
    (
        "Deployment",
        {f"{MAIN}/resources/requests/rdma~1ib": 1},
        "needs an equal limit",
        {f"{MAIN}/resources/limits/rdma~1ib": 1},
    ),
    (
        "Deployment",
        {f"{MAIN}/resources/limits/nvidia.com~1gpu": "500m"},
        "not an integer",
        {f"{MAIN}/resources/limits/nvidia.com~1gpu": "2"},
    ),
    (
        "Deployment",
        {f"{POD}/volumes/2/emptyDir/sizeLimit": "1GiB"},
        "is not a quantity",
        {f"{POD}/volumes/2/emptyDir/sizeLimit": 1},
    ),
    (
        "PersistentVolumeClaim",
        {"spec/resources/requests/storage": "1TB"},
        "is not a quantity",
        {"spec/resources/requests/storage": "1Ti"},
    ),
    ("PersistentVolumeClaim", {"spec/resources": REMOVED}, "missing", {}),
    ("PersistentVolumeClaim", {"spec/accessModes": []}, "missing", {}),
    (
        "PersistentVolumeClaim",
        {"spec/accessModes": ["RWX"]},
        "'RWX' is not one of",
        {"spec/accessModes": ["ReadOnlyMany"]},
    ),
    (
        "StatefulSet",
        {"spec/volumeClaimTemplates/0/spec/resources/requests/storage": "x"},
        "is not a quantity",
        {},
    ),
    ("Deployment", {f"{MAIN}/imagePullPolicy": "always"}, "is not one of Always", {}),
    ("Deployment", {f"{MAIN}/ports/0/protocol": "HTTP"}, "is not one of SCTP", {}),
    ("Deployment", {"spec/strategy/type": "Rolling"}, "is not one of Recreate", {}),
    ("Deployment", {f"{POD}/restartPolicy": "Never"}, "must be Always", {}),
    ("Job", {f"{POD}/restartPolicy": REMOVED}, "must be OnFailure or Never", {}),
    ("Service", {"spec/type": "Clusterip"}, "is not one of ClusterIP", {"spec/type": "NodePort"}),
    ("Service", {"spec/ports/0/name": REMOVED}, "needs a name", {"spec/ports/1": REMOVED}),
    ("Service", {"spec/ports/0/name": "other"}, "second port other", {}),
    ("Service", {"spec/ports/0/name": "A"}, "port name", {"spec/ports/0/name": "a" * 20}),
    ("Service", {"spec/ports/0/targetPort": "a" * 16}, "at most 15", {}),
    ("Service", {"spec/ports/0/port": 0}, "not a port number", {"spec/ports/0/port": 65535}),
    ("Service", {"spec/ports": []}, "missing", {"spec/ports": [], "spec/clusterIP": "None"}),
    ("Service", {"spec/selector/app": "a b"}, "label value", {"spec/selector": REMOVED}),
    ("NetworkPolicy", {"spec/policyTypes": ["ingress"]}, "is not one of Egress", {}),
    (
        "PodDisruptionBudget",
        {"spec/maxUnavailable": 1},
        "exclude each other",
        {"spec/maxUnavailable": 1, "spec/minAvailable": REMOVED},
    ),
]


@pytest.mark.parametrize(("kind", "broken", "message", "near"), CASES)
def test_a_broken_object_is_rejected_and_a_near_miss_is_not(
    kind: str, broken: dict[str, Any], message: str, near: dict[str, Any]
) -> None:
    problems = of(kind, broken)
    assert problems
    assert all(message in problem for problem in problems), problems
    assert of(kind, near) == []


def test_the_published_schemas_accept_the_broken_objects() -> None:
    passed = 0
    for kind, broken, _, _ in CASES:
        schema = validator("1.33", BY_KIND[kind]["apiVersion"], kind)
        assert schema is not None
        passed += schema.is_valid(edited(BY_KIND[kind], broken))
    assert passed == len(CASES)


def test_volumes_and_ports_added_to_a_pod_are_known() -> None:
    changes = {f"{MAIN}/readinessProbe/httpGet/port": "system", f"{MAIN}/volumeMounts/2/name": "x"}
    (template,) = templates(edited(BY_KIND["Deployment"], changes))
    assert len(list(pod_problems(template))) == 2
    assert list(pod_problems(template, volumes=["x"], ports=["system"])) == []
