"""References between the objects of a release: each check has a breaking case and a near miss."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.kubernetes_schemas.dgd import SAMPLES_FILE, Document, beta, deployment
from tests.support.kubernetes_schemas.edit import edited
from tests.support.kubernetes_schemas.references import set_problems

SAMPLES = list(yaml.safe_load_all(SAMPLES_FILE.read_text("utf-8")))
EXTERNALS = ("Secret/hf-token", "Secret/tls")
PODS = ({"made-by": "operator", "other": "label"},)
POD = "Deployment/spec/template/spec"
MAIN = f"{POD}/containers/0"
WEB = "Deployment/web spec.template.spec"


def release(changes: dict[str, Any]) -> list[Document]:
    """The samples; a change's path starts with a kind and changes the first object of that kind."""
    objects = {f"{s['kind']}{'' if i == 0 else i}": s for i, s in _numbered(SAMPLES)}
    return list(edited(objects, changes).values())


def _numbered(samples: list[Document]) -> list[tuple[int, Document]]:
    kinds: list[str] = []
    numbered = []
    for sample in samples:
        numbered.append((kinds.count(sample["kind"]), sample))
        kinds.append(sample["kind"])
    return numbered


def problems_of(changes: dict[str, Any], **more: Any) -> list[str]:
    return set_problems(release(changes), **{"externals": EXTERNALS, "pods": PODS, **more})


def test_a_valid_release_is_accepted() -> None:
    assert problems_of({}) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {f"{POD}/serviceAccountName": "x"},
            f"{WEB}.serviceAccountName: ServiceAccount/x is neither",
        ),
        (
            {f"{POD}/imagePullSecrets/0/name": "x"},
            f"{WEB}.imagePullSecrets[0]: Secret/x is neither",
        ),
        (
            {f"{POD}/volumes/0/configMap/name": "x"},
            f"{WEB}.volumes[0].configMap: ConfigMap/x is neither",
        ),
        (
            {f"{POD}/volumes/0/configMap/items/0/key": "x"},
            f"{WEB}.volumes[0].configMap: ConfigMap/settings has no key 'x'",
        ),
        (
            {f"{POD}/volumes/1/persistentVolumeClaim/claimName": "x"},
            f"{WEB}.volumes[1].persistentVolumeClaim: PersistentVolumeClaim/x is",
        ),
        (
            {f"{POD}/volumes/3/projected/sources/0/secret/name": "x"},
            f"{WEB}.volumes[3].projected.sources[0].secret: Secret/x is neither",
        ),
        (
            {f"{POD}/volumes/2": {"name": "shm", "secret": {"secretName": "x"}}},
            f"{WEB}.volumes[2].secret: Secret/x is neither",
        ),
        (
            {f"{MAIN}/env/0/valueFrom/configMapKeyRef/key": "level"},
            f"{WEB}.containers[0].env[0]: ConfigMap/settings has no key 'level'",
        ),
        (
            {f"{MAIN}/env/1/valueFrom/secretKeyRef/optional": False},
            f"{WEB}.containers[0].env[1]: Secret/token is neither",
        ),
        (
            {f"{MAIN}/envFrom/0/secretRef/name": "x"},
            f"{WEB}.containers[0].envFrom[0]: Secret/x is neither",
        ),
        (
            {"ServiceAccount/imagePullSecrets/0/name": "x"},
            "ServiceAccount/web imagePullSecrets[0]: Secret/x is neither",
        ),
        (
            {"RoleBinding/subjects/0/name": "x"},
            "RoleBinding/web subjects[0]: ServiceAccount/x is neither",
        ),
        ({"RoleBinding/roleRef/name": "x"}, "RoleBinding/web roleRef: Role/x is neither"),
        ({"Ingress/spec/tls/0/secretName": "x"}, "Ingress/web spec.tls[0]: Secret/x is neither"),
        (
            {"NetworkPolicy/spec/podSelector/matchLabels/app": "x"},
            "NetworkPolicy/web spec.podSelector: matches no pod of the release",
        ),
        (
            {"PodDisruptionBudget/spec/selector/matchLabels/more": "x"},
            "PodDisruptionBudget/web spec.selector: matches no pod of the release",
        ),
        (
            {"Service/spec/selector/app": "x"},
            "Service/web spec.selector: matches no pod of the release",
        ),
        (
            {"Service/spec/ports/0/targetPort": "x"},
            "Service/web spec.ports[0]: no pod behind it has a port 'x'",
        ),
        (
            {"Service1/spec/selector/made-by": "x"},
            "Service/graph spec.selector: matches no pod of the release",
        ),
        (
            {"ServiceAccount/metadata/name": "x"},
            f"{WEB}.serviceAccountName: ServiceAccount/web is neither",
        ),
        (
            {"PersistentVolumeClaim/metadata/namespace": "x"},
            f"{WEB}.volumes[1].persistentVolumeClaim: PersistentVolumeClaim/cache",
        ),
        (
            {"NetworkPolicy/metadata/namespace": "x"},
            "NetworkPolicy/web spec.podSelector: matches no pod of the release",
        ),
        (
            {"Service1/metadata/name": "web"},
            "Service/web metadata.name: second object of this name",
        ),
    ],
)
def test_a_broken_reference_is_rejected(changes: dict[str, Any], problem: str) -> None:
    problems = problems_of(changes)
    assert any(message.startswith(problem) for message in problems), problems


def test_external_objects_and_pods_are_considered() -> None:
    assert [problem.split(" ")[1] for problem in problems_of({}, externals=(), pods=())] == [
        "spec.template.spec.containers[0].envFrom[0]:",
        "spec.selector:",
        "spec.tls[0]:",
    ]


GRAPH = deployment(
    "v1beta1",
    {
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}}],
        **beta(
            compilationCache={"pvcName": "p"},
            eppConfig={"configMapRef": {"name": "a", "key": "e"}},
            podTemplate={
                "metadata": {"labels": {"role": "w"}},
                "spec": {
                    "containers": [{"name": "main", "envFrom": [{"secretRef": {"name": "s"}}]}]
                },
            },
        ),
    },
)
BUDGET = {
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b"},
    "spec": {"selector": {"matchLabels": {"role": "w"}}},
}


def test_references_and_pods_of_a_graph_deployment_are_considered() -> None:
    problems = set_problems([GRAPH, BUDGET])
    component = "DynamoGraphDeployment/g spec.components[0]"
    assert [message.split(" is neither")[0] for message in problems] == [
        f"{component}.compilationCache.pvcName: PersistentVolumeClaim/p",
        f"{component}.eppConfig.configMapRef: ConfigMap/a",
        f"{component}.podTemplate.spec.containers[0].envFrom[0]: Secret/s",
        "DynamoGraphDeployment/g spec.env[0]: ConfigMap/a",
    ]
    data = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1", "e": "2"}}
    externals = ["PersistentVolumeClaim/p", "Secret/s"]
    assert set_problems([GRAPH, BUDGET, data], externals=externals) == []
