"""Every CEL rule of Dynamo's CRD: one document that breaks it, and a near miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.kubernetes_schemas import crd
from tests.support.kubernetes_schemas.dgd import CRD, Document, alpha, beta, deployment

pytestmark = pytest.mark.needs("crds")

DISTINCT_RULES = 22
RESERVED = "extraClientPods is reserved for inter-pod GMS and is not implemented yet"
BOTH = ("v1alpha1", "v1beta1")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A document that breaks a rule, and a near miss that does not."""

    version: str
    message: str
    broken: Document
    near: Document
    # The object that both replace.
    old: Document | None = None
    # Other rules that both break, because the rule cannot be broken alone.
    besides: tuple[str, ...] = ()


def in_both(message: str, broken: Document, near: Document) -> list[Case]:
    """Cases of a rule about a spec that both versions share."""
    return [
        Case(
            version=version,
            message=message,
            broken={**spec, **broken},
            near={**spec, **near},
        )
        for version, spec in zip(BOTH, (alpha(), beta()), strict=True)
    ]


def transfer(**policy: Any) -> Document:
    return {"experimental": {"kvTransferPolicy": {"domain": "rack", **policy}}}


def label_key(prefix_length: int) -> Document:
    prefix = ".".join(("a" * 63, "b" * 63, "c" * 63, "d" * (prefix_length - 192)))
    return transfer(labelKey=f"{prefix}/rack")


def epp(**fields: Any) -> Document:
    return beta(type="epp", eppConfig=fields)


def memory(**service: Any) -> tuple[Document, Document]:
    """The GPU memory service, in both versions' places; modes are written differently."""
    first = {**service, "mode": service["mode"][0].lower() + service["mode"][1:]}
    gpu = {"gpuMemoryService": service}
    return alpha(gpuMemoryService={"enabled": True, **first}), beta(experimental=gpu)


def checkpoint(**fields: Any) -> tuple[Document, Document]:
    fields = {"enabled": True, **fields}
    return alpha(checkpoint=fields), beta(experimental={"checkpoint": fields})


def pod(**spec: Any) -> Document:
    return beta(podTemplate={"spec": {"containers": [{"name": "main"}], **spec}})


def backend(name: str) -> Document:
    annotations = {"nvidia.com/vllm-distributed-executor-backend": name}
    return beta(
        podTemplate={
            "metadata": {"annotations": annotations},
            **pod()["components"][0]["podTemplate"],
        }
    )


def pairs(
    message: str, broken: tuple[Document, Document], near: tuple[Document, Document], **more: Any
) -> list[Case]:
    """The same rule in both versions; `{}` in the message is the version's first letter."""
    return [
        Case(version=v, message=message.format("iI"[i]), broken=broken[i], near=near[i], **more)
        for i, v in enumerate(BOTH)
    ]


def in_components(**fields: Any) -> tuple[Document, Document]:
    return alpha(**fields), beta(**fields)


PLUGINS: Document = {"plugins": [], "schedulingProfiles": []}
EXTRA_POD = [{"name": "x", "podTemplate": {}}]
RESTART = {"restart": {"id": "1"}}
PVC = {"name": "p", "create": True, "size": "1Gi", "storageClass": "s", "volumeAccessMode": "m"}

CASES = [
    *(
        Case(
            version=version,
            message="minAvailable is immutable after creation",
            old=make(replicas=3, minAvailable=1),
            broken=make(replicas=3, minAvailable=2),
            near=make(replicas=5, minAvailable=1),
        )
        for version, make in zip(BOTH, (alpha, beta), strict=True)
    ),
    *in_both(
        "spec.restart must be unset on create; set spec.restart.id after creation to request a "
        "restart",
        RESTART,
        {},
    ),
    *in_both(
        "exactly one of labelKey or clusterTopologyName is required",
        transfer(labelKey="a/b", clusterTopologyName="t"),
        transfer(labelKey="a/b"),
    ),
    *in_both(
        "preferredWeight is required when enforcement is preferred",
        transfer(labelKey="a/b", enforcement="preferred"),
        transfer(labelKey="a/b", enforcement="preferred", preferredWeight=0.5),
    ),
    *in_both(
        "preferredWeight may only be set when enforcement is preferred",
        transfer(clusterTopologyName="t", preferredWeight=1),
        transfer(clusterTopologyName="t"),
    ),
    *in_both("labelKey prefix must be 253 characters or less", label_key(254), label_key(253)),
    *pairs(
        "minAvailable must be less than or equal to replicas unless replicas is 0",
        in_components(minAvailable=2),
        in_components(minAvailable=2, replicas=0),
    ),
    *pairs(
        "checkpoint.job cannot be set when checkpointRef is specified",
        checkpoint(checkpointRef="c", job={}),
        checkpoint(checkpointRef="", job={}),
    ),
    *pairs(
        "extraClientContainers is only supported with mode={}ntraPod",
        memory(mode="InterPod", extraClientContainers=["a"]),
        memory(mode="IntraPod", extraClientContainers=["a"]),
    ),
    *pairs(
        "extraClientPods is only supported with mode={}nterPod",
        memory(mode="IntraPod", extraClientPods=EXTRA_POD),
        memory(mode="InterPod", extraClientPods=EXTRA_POD),
        besides=(RESERVED,),
    ),
    *pairs(
        RESERVED,
        memory(mode="InterPod", extraClientPods=EXTRA_POD),
        memory(mode="InterPod", extraClientPods=[]),
    ),
    Case(
        version="v1alpha1",
        message="When create is true, size, storageClass, and volumeAccessMode are required",
        broken={**alpha(), "pvcs": [{k: v for k, v in PVC.items() if k != "size"}]},
        near={**alpha(), "pvcs": [PVC, {"name": "q", "create": False}]},
    ),
    Case(
        version="v1alpha1",
        message="size is required when disabled is false",
        broken=alpha(sharedMemory={"size": "0Gi"}),
        near=alpha(sharedMemory={"size": "1m"}),
    ),
    Case(
        version="v1beta1",
        message="at most one component may have type epp",
        broken={"components": [{"name": n, "type": "epp"} for n in "ab"]},
        near={"components": [{"name": "a", "type": "epp"}, {"name": "b", "type": "worker"}]},
    ),
    Case(
        version="v1beta1",
        message="component names must be unique case-insensitively",
        broken={"components": [{"name": "a"}, {"name": "A"}]},
        near={"components": [{"name": "a"}, {"name": "AA"}]},
    ),
    Case(
        version="v1beta1",
        message="eppConfig may only be set when type is epp",
        broken=beta(eppConfig={"config": PLUGINS}),
        near=epp(config=PLUGINS),
    ),
    Case(
        version="v1beta1",
        message="exactly one of configMapRef or config must be specified",
        broken=epp(config=PLUGINS, configMapRef={"key": "k"}),
        near=epp(configMapRef={"key": "k"}),
    ),
    Case(
        version="v1beta1",
        message="podTemplate backend annotation must be mp or ray, case-insensitively",
        broken=backend("mpi"),
        near=backend("MP"),
    ),
    Case(
        version="v1beta1",
        message="sidecar containers must specify a non-empty image",
        broken=pod(containers=[{"name": "main"}, {"name": "s", "image": ""}]),
        near=pod(containers=[{"name": "main"}, {"name": "s", "image": "i"}]),
    ),
    Case(
        version="v1beta1",
        message="init containers must specify a non-empty image",
        broken=pod(initContainers=[{"name": "main"}]),
        near=pod(initContainers=[{"name": "main", "image": "i"}]),
    ),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.version}-{c.message[:40]}")


def messages(case: Case, spec: Document) -> set[str]:
    old = None if case.old is None else deployment(case.version, case.old)
    return {message for _, message in crd.problems(CRD, deployment(case.version, spec), old)}


def test_every_rule_compiles() -> None:
    rules = [declared["rule"] for v in crd.versions(CRD).values() for _, declared in v.rules()]
    assert len(set(rules)) == DISTINCT_RULES


def test_every_rule_has_a_case_in_every_version() -> None:
    declared = {
        (api_version.split("/")[1], rule["message"])
        for api_version, version in crd.versions(CRD).items()
        for _, rule in version.rules()
    }
    assert {(case.version, case.message) for case in CASES} == declared


@every_case
def test_a_document_that_breaks_a_rule_is_rejected_with_its_message(case: Case) -> None:
    assert messages(case, case.broken) == {case.message, *case.besides}


@every_case
def test_a_near_miss_is_accepted(case: Case) -> None:
    assert messages(case, case.near) == {*case.besides}


@pytest.mark.parametrize(("version", "make"), [("v1alpha1", alpha), ("v1beta1", beta)])
def test_a_restart_can_be_requested_later(version: str, make: Any) -> None:
    spec = make()
    old, new = deployment(version, spec), deployment(version, {**spec, **RESTART})
    assert crd.problems(CRD, new, old) == []


@pytest.mark.parametrize(("version", "make"), [("v1alpha1", alpha), ("v1beta1", beta)])
def test_min_available_can_be_set_once_but_not_removed(version: str, make: Any) -> None:
    without, having = (deployment(version, make(**f)) for f in ({}, {"minAvailable": 1}))
    assert crd.problems(CRD, having) == []
    assert crd.problems(CRD, having, without) == []
    ((_, message),) = crd.problems(CRD, without, having)
    assert message == "minAvailable is immutable after creation"


def test_a_component_is_matched_after_reordering() -> None:
    first, second = {"name": "a", "minAvailable": 1}, {"name": "b"}
    old = deployment("v1beta1", {"components": [first, second]})
    moved = deployment(
        "v1beta1", {"components": [second, {**first, "minAvailable": 2, "replicas": 2}]}
    )
    ((place, message),) = crd.problems(CRD, moved, old)
    assert (place, message) == ("spec.components[1]", "minAvailable is immutable after creation")
