"""Cases of updates, scaling and versions (PS8xx, PS9xx)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.checks.cases_deployment import (
    COMPONENTS,
    DECODE,
    GROVE,
    MAIN,
    NOTES,
    SCALED,
    STRATEGY,
    TRTLLM_IMAGE,
    WORKER,
    pod,
)
from tests.checks.own_manifests import alpha, component, deployment, flags, with_document
from tests.checks.support import (
    REMOVE,
    TRTLLM_DISAGG,
    VLLM_AGG,
    Case,
    graph,
    manifest,
)

SURGE = "nvidia.com~1deployment-rolling-update-max-surge"
REMOVED = "nvidia.com~1deployment-rolling-update-max-unavailable"
UNREAD = {"worker/env/VLLM_USE_FLASHINFER_MOE_FP4": "1"}
IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"


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


CHANGE = (
    Case(
        rule="PS801",
        bad=graph(
            VLLM_AGG,
            {
                f"worker/annotations/{SURGE}": "0",
                f"worker/annotations/{REMOVED}": "1",
                "worker/replicas": 1,
            },
        ),
        near=graph(
            VLLM_AGG,
            {
                f"worker/annotations/{SURGE}": "0",
                f"worker/annotations/{REMOVED}": "1",
                "worker/replicas": 2,
            },
        ),
    ),
    Case(
        rule="PS801",
        bad=graph(
            VLLM_AGG,
            {f"worker/annotations/{SURGE}": "0%", f"worker/annotations/{REMOVED}": "100%"},
        ),
        near=graph(
            VLLM_AGG,
            {f"worker/annotations/{SURGE}": "0%", f"worker/annotations/{REMOVED}": "99%"},
        ),
    ),
    Case(
        rule="PS802",
        bad=graph(VLLM_AGG, {f"worker/annotations/{STRATEGY}": "Recreate"}),
        near=graph(VLLM_AGG, {f"frontend/annotations/{STRATEGY}": "Recreate"}),
    ),
    Case(
        rule="PS803",  # 8 GPUs; a worker uses 2
        bad=graph(VLLM_AGG, {"hardware/nodes": 1, "worker/replicas": 4}),
        near=graph(VLLM_AGG, {"hardware/nodes": 1, "worker/replicas": 3}),
        is_repaired_by_near=True,
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
        rule="PS806",  # the adapter of v1alpha1 is disabled by default
        bad=alpha({"replicas": 2, "scalingAdapter": {"enabled": True}}),
        near=alpha({"replicas": 2, "scalingAdapter": {}}),
    ),
    Case(
        rule="PS807",
        bad=hpa("Deployment", "case-decode"),
        near=hpa("Deployment", "casestudy"),
        fixed=hpa("DynamoGraphDeploymentScalingAdapter", "case-decode", SCALED),
    ),
    Case(
        rule="PS807",
        bad=hpa("DynamoGraphDeploymentScalingAdapter", "case-decode"),
        near=hpa("DynamoGraphDeploymentScalingAdapter", "case-decode", SCALED),
    ),
    Case(
        rule="PS807",  # KEDA scales a Deployment by default
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
        rule="PS909",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/image": f"{IMAGE}:my-tag"}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/image": f"{IMAGE}:latest"}),
    ),
    Case(
        rule="PS909",  # a namespace
        bad=manifest(VLLM_AGG, {"dgd/metadata/namespace": "<your-namespace>"}),
        near=manifest(VLLM_AGG, {"dgd/metadata/namespace": "serving"}),
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
        bad=graph(VLLM_AGG, {"worker/image": f"{IMAGE}:1.3.1"}),
        near=graph(VLLM_AGG, {"worker/image": f"{IMAGE}:1.4.2"}),
        also=("PS905",),
    ),
    Case(
        rule="PS904",  # release 1.0 followed 0.9
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
        rule="PS910",
        bad=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.9.0"}),
        near=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.7.0"}),
    ),
    Case(
        rule="PS912",
        bad=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.6.1-cuda14"}),
        near=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.6.1-cuda13"}),
        fixed=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.6.1"}),
    ),
    Case(  # vLLM 0.23 of Dynamo 1.3 still reads the variable
        rule="PS911",
        bad=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.3.1", **UNREAD}),
        near=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.3.1"}),
        fixed=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.3.1"}),
    ),
    Case(
        rule="PS906",
        bad=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.4.2"}),
        near=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:1.5.0"}),
        is_repaired_by_near=True,
        also=("PS141",),
    ),
    Case(
        rule="PS906",  # images of other builders may have the fixes
        bad=graph(VLLM_AGG, {"engine/image": f"{IMAGE}:0.5.0"}),
        near=graph(VLLM_AGG, {"engine/image": "registry.local/vllm-runtime:0.5.0"}),
    ),
    Case(
        rule="PS907",
        bad=alpha({}),
        near=manifest(VLLM_AGG),
        fixed=deployment(
            component("vllm", *flags("openai/gpt-oss-120b", tensor_parallel_size=2), gpus=2)
        ),
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

CASES: tuple[Case, ...] = (*CHANGE, *VERSIONS)
