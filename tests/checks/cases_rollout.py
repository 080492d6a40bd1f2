"""Cases of the deployment, of change and scale, and of versions (PS751 and up)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.checks.cases_pods import alpha, with_document
from tests.checks.support import (
    REMOVE,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    Case,
    graph,
    manifest,
)

COMPONENTS = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
DECODE = f"{COMPONENTS}/decode"
WORKER = f"{COMPONENTS}/worker"
NOTES = "dgd/metadata/annotations"
STRATEGY = "nvidia.com~1deployment-strategy"
SURGE = "nvidia.com~1deployment-rolling-update-max-surge"
GONE = "nvidia.com~1deployment-rolling-update-max-unavailable"
GROVE = "nvidia.com~1grove-update-strategy"
POLICY = "dgd/spec/experimental/kvTransferPolicy"
IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"
TRTLLM_IMAGE = "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime"
# Shadow engines in one pod, as the operator wants them.
IN_ONE_POD = {
    f"{NOTES}/nvidia.com~1dynamo-kube-discovery-mode": "container",
    f"{DECODE}/experimental/gpuMemoryService": {"mode": "IntraPod"},
    f"{DECODE}/experimental/failover": {"mode": "IntraPod"},
}
SCALED = {f"{DECODE}/replicas": REMOVE, f"{DECODE}/scalingAdapter": {}}
AGGREGATED = ["--model", "openai/gpt-oss-120b", "--extra-engine-args", "/etc/penstock/engine.yaml"]


def pod(kind: str, replicas: int = 1, image: str = f"{TRTLLM_IMAGE}:1.6.1") -> dict[str, Any]:
    """A component that runs what its image has: an endpoint picker, a planner, a frontend."""
    container = {"name": "main", "image": image, "command": ["python3", "-m", f"dynamo.{kind}"]}
    template = {"spec": {"containers": [container]}}
    return {"name": kind, "type": kind, "replicas": replicas, "podTemplate": template}


def many(count: int) -> dict[str, Any]:
    return {f"{COMPONENTS}/f{i}": {**pod("frontend"), "name": f"f{i}"} for i in range(count)}


def scaler(kind: str, target: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": kind,
        "metadata": {"name": "scaler"},
        "spec": {"scaleTargetRef": dict(target)},
    }


def hpa(kind: str, name: str, changes: Mapping[str, Any] | None = None) -> str:
    document = scaler("HorizontalPodAutoscaler", {"kind": kind, "name": name})
    return with_document(manifest(TRTLLM_DISAGG, changes), document)


def kind_of(kind: str) -> dict[str, Any]:
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": kind, "metadata": {"name": "snapshot"}}


DEPLOYMENT = (
    Case(
        rule="PS751",
        bad=manifest(VLLM_AGG, {"dgd/metadata/name": "Case"}),
        near=manifest(VLLM_AGG, {"dgd/metadata/name": "case-1"}),
    ),
    Case(
        rule="PS751",  # Services begin with a letter
        bad=manifest(VLLM_AGG, {"dgd/metadata/name": "120b"}),
        near=manifest(VLLM_AGG, {"dgd/metadata/name": "b120"}),
    ),
    Case(
        rule="PS751",  # with -frontend behind it
        bad=manifest(VLLM_AGG, {"dgd/metadata/name": "a" * 55}),
        near=manifest(VLLM_AGG, {"dgd/metadata/name": "a" * 54}),
    ),
    Case(
        rule="PS752",  # the name, decode, decode-ldr
        bad=manifest(
            TRTLLM_DISAGG,
            {"dgd/metadata/name": "a" * 30, f"{DECODE}/multinode": {"nodeCount": 2}},
        ),
        near=manifest(
            TRTLLM_DISAGG,
            {"dgd/metadata/name": "a" * 29, f"{DECODE}/multinode": {"nodeCount": 2}},
        ),
    ),
    Case(
        rule="PS753",
        bad=manifest(TRTLLM_DISAGG, many(23)),
        near=manifest(TRTLLM_DISAGG, many(22)),
    ),
    Case(
        rule="PS754",
        bad=manifest(VLLM_AGG, {"dgd/spec/restart": {"id": "1"}}),
        near=manifest(VLLM_AGG, {"dgd/spec/restart": None}),
    ),
    Case(
        rule="PS755",
        bad=manifest(VLLM_AGG, {f"{NOTES}/nvidia.com~1current-worker-hash-v2": "0fddc01b"}),
        near=manifest(VLLM_AGG, {f"{NOTES}/nvidia.com~1enable-grove": "false"}),
    ),
    Case(
        rule="PS756",
        bad=graph(VLLM_AGG, {f"worker/annotations/{STRATEGY}": "recreate"}),
        near=graph(VLLM_AGG, {f"worker/annotations/{STRATEGY}": "Recreate"}),
    ),
    Case(
        rule="PS756",
        bad=manifest(VLLM_AGG, {f"{NOTES}/{GROVE}": "Rolling"}),
        near=manifest(VLLM_AGG, {f"{NOTES}/{GROVE}": "OnDelete"}),
    ),
    Case(
        rule="PS756",
        bad=alpha({"annotations": {"nvidia.com/deployment-strategy": "Blue"}}),
        near=alpha({"annotations": {"nvidia.com/deployment-strategy": "RollingUpdate"}}),
    ),
    Case(
        rule="PS757",
        bad=manifest(VLLM_AGG, {"dgd/spec/backendFramework": "trtllm"}),
        near=manifest(VLLM_AGG, {"dgd/spec/backendFramework": REMOVE}),
    ),
    Case(
        rule="PS758",
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/{MAIN}/command": ["python3", "-m", "dynamo.vllm"]}),
        near=manifest(
            TRTLLM_DISAGG, {f"{DECODE}/{MAIN}/command": ["python", "-m", "dynamo.trtllm"]}
        ),
    ),
    Case(
        rule="PS759",  # v1alpha1 has the field
        bad=manifest(TRTLLM_DISAGG, {**SCALED, f"{DECODE}/scalingAdapter": {"enabled": True}}),
        near=alpha({"scalingAdapter": {"enabled": True}}),
    ),
    Case(
        rule="PS759",
        bad=manifest(TRTLLM_DISAGG, {**SCALED, f"{DECODE}/scalingAdapter": {"enabled": False}}),
        near=manifest(TRTLLM_DISAGG, SCALED),
    ),
    Case(
        rule="PS760",
        bad=manifest(VLLM_AGG, {f"{WORKER}/minAvailable": 1}),
        near=manifest(VLLM_AGG, {f"{WORKER}/providerOverride/value/spec/minAvailable": 1}),
    ),
    Case(
        rule="PS761",
        bad=manifest(TRTLLM_DISAGG, {POLICY: {"labelKey": "rack", "clusterTopologyName": "dc"}}),
        near=manifest(TRTLLM_DISAGG, {POLICY: {"labelKey": "rack"}}),
    ),
    Case(
        rule="PS761",
        bad=manifest(TRTLLM_DISAGG, {POLICY: {"labelKey": "rack", "enforcement": "preferred"}}),
        near=manifest(
            TRTLLM_DISAGG,
            {POLICY: {"labelKey": "rack", "enforcement": "preferred", "preferredWeight": 0}},
        ),
    ),
    Case(
        rule="PS761",  # enforcement is required unless it says otherwise
        bad=manifest(TRTLLM_DISAGG, {POLICY: {"labelKey": "rack", "preferredWeight": 0.5}}),
        near=manifest(TRTLLM_DISAGG, {POLICY: {"labelKey": "rack", "enforcement": "required"}}),
    ),
    Case(
        rule="PS762",
        bad=manifest(
            TRTLLM_DISAGG, {**IN_ONE_POD, f"{DECODE}/experimental/gpuMemoryService": REMOVE}
        ),
        near=manifest(TRTLLM_DISAGG, IN_ONE_POD),
    ),
    Case(
        rule="PS762",
        bad=manifest(
            TRTLLM_DISAGG,
            {**IN_ONE_POD, f"{DECODE}/experimental/gpuMemoryService": {"mode": "InterPod"}},
        ),
        near=manifest(TRTLLM_DISAGG, {**IN_ONE_POD, f"{DECODE}/experimental/gpuMemoryService": {}}),
    ),
    Case(
        rule="PS762",
        bad=manifest(
            TRTLLM_DISAGG,
            {
                f"{DECODE}/experimental/gpuMemoryService": {},
                f"{DECODE}/experimental/failover": {},
            },
        ),
        near=manifest(
            TRTLLM_DISAGG,
            {
                f"{DECODE}/experimental/gpuMemoryService": {"mode": "InterPod"},
                f"{DECODE}/experimental/failover": {"mode": "InterPod"},
            },
        ),
    ),
    Case(
        rule="PS763",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/epp": pod("epp", 2)}),
        near=manifest(VLLM_AGG, {f"{COMPONENTS}/epp": pod("epp", 1)}),
    ),
    Case(
        rule="PS764",
        bad=with_document(manifest(VLLM_AGG), kind_of("DynamoCheckpoint")),
        near=with_document(manifest(VLLM_AGG), kind_of("PodSnapshot")),
    ),
    Case(
        rule="PS765",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/frontend": REMOVE}),
        near=manifest(
            VLLM_AGG, {f"{COMPONENTS}/frontend": REMOVE, f"{COMPONENTS}/epp": pod("epp")}
        ),
    ),
    Case(
        rule="PS766",
        bad=manifest(TRTLLM_DISAGG, {f"{COMPONENTS}/prefill": REMOVE}),
        near=manifest(
            TRTLLM_DISAGG,
            {f"{COMPONENTS}/prefill": REMOVE, f"{DECODE}/{MAIN}/args": AGGREGATED},
        ),
    ),
    Case(
        rule="PS766",
        bad=manifest(TRTLLM_DISAGG, {f"{COMPONENTS}/decode": REMOVE}),
        near=manifest(TRTLLM_DISAGG, {f"{DECODE}/replicas": 0}),
    ),
    Case(
        rule="PS767",
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/type": "prefill"}),
        near=manifest(TRTLLM_DISAGG, {f"{DECODE}/type": "worker"}),
    ),
    Case(
        rule="PS767",
        bad=graph(TRTLLM_DISAGG, {"decode/args": ["--disaggregation-mode", "agg"]}),
        near=graph(TRTLLM_DISAGG, {"decode/args": ["--disaggregation-mode", "decode"]}),
    ),
)

CHANGE = (
    Case(
        rule="PS801",
        bad=graph(
            VLLM_AGG,
            {
                f"worker/annotations/{SURGE}": "0",
                f"worker/annotations/{GONE}": "1",
                "worker/replicas": 1,
            },
        ),
        near=graph(
            VLLM_AGG,
            {
                f"worker/annotations/{SURGE}": "0",
                f"worker/annotations/{GONE}": "1",
                "worker/replicas": 2,
            },
        ),
    ),
    Case(
        rule="PS801",
        bad=graph(
            VLLM_AGG,
            {f"worker/annotations/{SURGE}": "0%", f"worker/annotations/{GONE}": "100%"},
        ),
        near=graph(
            VLLM_AGG,
            {f"worker/annotations/{SURGE}": "0%", f"worker/annotations/{GONE}": "99%"},
        ),
    ),
    Case(
        rule="PS802",
        bad=graph(VLLM_AGG, {f"worker/annotations/{STRATEGY}": "Recreate"}),
        near=graph(VLLM_AGG, {f"frontend/annotations/{STRATEGY}": "Recreate"}),
    ),
    Case(
        rule="PS803",  # 8 GPUs; a worker takes 2
        bad=graph(VLLM_AGG, {"hardware/nodes": 1, "worker/replicas": 4}),
        near=graph(VLLM_AGG, {"hardware/nodes": 1, "worker/replicas": 3}),
    ),
    Case(
        rule="PS803",
        bad=graph(TRTLLM_DISAGG, {"hardware/nodes": 1}),
        near=graph(
            TRTLLM_DISAGG,
            {"hardware/nodes": 1, f"decode/annotations/{SURGE}": "0"},
        ),
    ),
    Case(
        rule="PS804",
        bad=manifest(VLLM_AGG, {f"{NOTES}/{GROVE}": "Coherent"}),
        near=manifest(VLLM_AGG, {f"{NOTES}/{GROVE}": "RollingRecreate"}),
    ),
    Case(
        rule="PS804",
        bad=manifest(
            TRTLLM_DISAGG, {f"{NOTES}/{GROVE}": REMOVE, f"{DECODE}/multinode": {"nodeCount": 2}}
        ),
        near=manifest(
            TRTLLM_DISAGG, {f"{NOTES}/{GROVE}": REMOVE, f"{DECODE}/multinode": {"nodeCount": 1}}
        ),
    ),
    Case(
        rule="PS805",
        bad=graph(TRTLLM_DISAGG, {"decode/nodes": 2}),
        near=graph(TRTLLM_DISAGG, {"decode/nodes": 1, "decode/replicas": 2}),
    ),
    Case(
        rule="PS806",
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/scalingAdapter": {}}),
        near=manifest(TRTLLM_DISAGG, SCALED),
    ),
    Case(
        rule="PS806",  # v1alpha1's is off unless it says otherwise
        bad=alpha({"replicas": 2, "scalingAdapter": {"enabled": True}}),
        near=alpha({"replicas": 2, "scalingAdapter": {}}),
    ),
    Case(
        rule="PS807",
        bad=hpa("Deployment", "case-decode"),
        near=hpa("Deployment", "casestudy"),
    ),
    Case(
        rule="PS807",
        bad=hpa("DynamoGraphDeploymentScalingAdapter", "case-decode"),
        near=hpa("DynamoGraphDeploymentScalingAdapter", "case-decode", SCALED),
    ),
    Case(
        rule="PS807",  # KEDA scales a Deployment unless told otherwise
        bad=with_document(
            manifest(TRTLLM_DISAGG), scaler("ScaledObject", {"name": "case-decode-0a1b"})
        ),
        near=with_document(manifest(TRTLLM_DISAGG), scaler("ScaledObject", {"name": "web"})),
    ),
    Case(
        rule="PS808",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/planner": pod("planner")}),
        near=manifest(
            VLLM_AGG,
            {
                f"{COMPONENTS}/planner": pod("planner"),
                f"{WORKER}/replicas": REMOVE,
                f"{WORKER}/scalingAdapter": {},
            },
        ),
    ),
    Case(
        rule="PS809",
        bad=graph(TRTLLM_DISAGG, {"decode/replicas": 0}),
        near=graph(TRTLLM_DISAGG, {"decode/replicas": 1}),
    ),
    Case(
        rule="PS809",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/frontend/replicas": 0}),
        near=manifest(VLLM_AGG, {f"{COMPONENTS}/frontend/replicas": REMOVE}),
    ),
    Case(
        rule="PS810",
        bad=graph(VLLM_AGG, {"frontend/replicas": 1}),
        near=graph(VLLM_AGG, {"frontend/replicas": 2}),
    ),
)

VERSIONS = (
    Case(
        rule="PS901",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/image": f"{IMAGE}:main"}),
        near=manifest(
            VLLM_AGG,
            {
                f"{WORKER}/{MAIN}/image": f"{IMAGE}:main",
                f"{WORKER}/runtimeVersionOverride": "1.6.1",
            },
        ),
    ),
    Case(
        rule="PS901",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/image": f"{IMAGE}@sha256:{'0' * 64}"}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/image": f"{IMAGE}:1.6.1-cuda13"}),
    ),
    Case(
        rule="PS902",
        bad=manifest(VLLM_AGG, {f"{WORKER}/runtimeVersionOverride": "1.6"}),
        near=manifest(VLLM_AGG, {f"{WORKER}/runtimeVersionOverride": "1.6.0"}),
    ),
    Case(
        rule="PS903",
        bad=graph(TRTLLM_DISAGG, {"decode/image": f"{TRTLLM_IMAGE}:1.6.0"}),
        near=graph(TRTLLM_DISAGG, {"engine/image": f"{TRTLLM_IMAGE}:1.6.0"}),
    ),
    Case(
        rule="PS904",
        bad=graph(VLLM_AGG, {"worker/image": f"{IMAGE}:1.3.2"}),
        near=graph(VLLM_AGG, {"worker/image": f"{IMAGE}:1.4.2"}),
    ),
    Case(
        rule="PS904",  # 1.0 followed 0.9
        bad=graph(VLLM_AGG, {"frontend/image": f"{IMAGE}:1.0.0", "worker/image": f"{IMAGE}:0.7.0"}),
        near=graph(
            VLLM_AGG, {"frontend/image": f"{IMAGE}:1.0.0", "worker/image": f"{IMAGE}:0.9.0"}
        ),
    ),
    Case(
        rule="PS905",
        bad=graph(VLLM_AGG, {"worker/image": f"{IMAGE}:1.5.0"}),
        near=graph(VLLM_AGG, {"worker/image": f"{IMAGE}:1.6.0"}),
    ),
    Case(
        rule="PS906",
        bad=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.4.2"}),
        near=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.5.0"}),
    ),
    Case(
        rule="PS906",  # what others build may have the fixes
        bad=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:0.5.0"}),
        near=graph(VLLM_AGG, {"engine/image": "registry.local/vllm-runtime:0.5.0"}),
    ),
    Case(
        rule="PS907",
        bad=alpha({}),
        near=manifest(VLLM_AGG),
    ),
    Case(
        rule="PS908",
        bad=alpha({"autoscaling": {"enabled": True}}),
        near=alpha({"scalingAdapter": {"enabled": True}}),
    ),
    Case(
        rule="PS908",
        bad=alpha({"dynamoNamespace": "case"}),
        near=alpha({}, {"envs": [{"name": "DYN_NAMESPACE", "value": "case"}]}),
    ),
)

CASES: tuple[Case, ...] = (*DEPLOYMENT, *CHANGE, *VERSIONS)
