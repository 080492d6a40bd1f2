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
    OMIT,
    REMOVE,
    Case,
    Words,
    X,
    trtllm_disagg,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
    vllm_agg_dgd,
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
    return with_document(trtllm_disagg_dgd(changes), document)


one_is_removed = vary(
    "PS801",
    vllm_agg,
    {
        f"worker/annotations/{SURGE}": "0",
        f"worker/annotations/{REMOVED}": "1",
        "worker/replicas": X,
    },
)
CHANGE = (
    one_is_removed(1, 3),
    one_is_removed(2, 3),
    vary(
        "PS801", vllm_agg, {f"worker/annotations/{SURGE}": "0%", f"worker/annotations/{REMOVED}": X}
    )("100%", "49%"),
    vary("PS802", vllm_agg)(
        {f"worker/annotations/{STRATEGY}": "Recreate"},
        {f"frontend/annotations/{STRATEGY}": "Recreate"},
    ),
    # 8 GPUs; a worker uses 2
    vary("PS803", vllm_agg, {"hardware/nodes": 1, "worker/replicas": X})(
        4, 3, is_repaired_by_near=True
    ),
    vary("PS803", trtllm_disagg, {"hardware/nodes": 1, f"decode/annotations/{SURGE}": X})(
        OMIT, "0"
    ),
    vary("PS804", vllm_agg_dgd, {f"{NOTES}/{GROVE}": X})("Coherent", "RollingRecreate"),
    vary(
        "PS804",
        trtllm_disagg_dgd,
        {f"{NOTES}/{GROVE}": REMOVE, f"{DECODE}/multinode": {"nodeCount": X}},
    )(2, 1),
    vary("PS805", trtllm_disagg)({"decode/nodes": 2}, {"decode/nodes": 1, "decode/replicas": 2}),
    vary("PS806", trtllm_disagg_dgd)({f"{DECODE}/scalingAdapter": {}}, SCALED),
    # the adapter of v1alpha1 is disabled by default
    vary("PS806", alpha, {"replicas": 2, "scalingAdapter": {"enabled": X}})(True, OMIT),
    vary("PS807", hpa, "Deployment", X)(
        "case-decode",
        "casestudy",
        fixed=hpa("DynamoGraphDeploymentScalingAdapter", "case-decode", SCALED),
    ),
    vary("PS807", hpa, "DynamoGraphDeploymentScalingAdapter", "case-decode", X)(OMIT, SCALED),
    # KEDA scales a Deployment by default
    vary("PS807", with_document, trtllm_disagg_dgd(), X)(
        scaler("ScaledObject", {"name": "case-decode-0a1b"}),
        scaler("ScaledObject", {"name": "web"}),
    ),
    vary("PS808", vllm_agg_dgd)(
        {f"{COMPONENTS}/planner": pod("planner")},
        {
            f"{COMPONENTS}/planner": pod("planner"),
            f"{WORKER}/replicas": REMOVE,
            f"{WORKER}/scalingAdapter": {},
        },
    ),
    vary("PS809", trtllm_disagg, {"decode/replicas": X})(0, 1),
    vary("PS809", vllm_agg_dgd, {f"{COMPONENTS}/frontend/replicas": X})(0, REMOVE),
    vary("PS810", vllm_agg, {"frontend/replicas": X})(1, 2),
)

VERSIONS = (
    vary(
        "PS901",
        vllm_agg_dgd,
        {f"{WORKER}/{MAIN}/image": f"{IMAGE}:main", f"{WORKER}/runtimeVersionOverride": X},
    )(OMIT, "1.6.1"),
    vary("PS901", vllm_agg_dgd, {f"{WORKER}/{MAIN}/image": X})(
        f"{IMAGE}@sha256:{'0' * 64}", f"{IMAGE}:1.6.1-cuda13"
    ),
    vary("PS909", vllm_agg_dgd, {f"{WORKER}/{MAIN}/image": X})(
        f"{IMAGE}:my-tag", f"{IMAGE}:latest"
    ),
    # a namespace
    vary("PS909", vllm_agg_dgd, {"dgd/metadata/namespace": X})("<your-namespace>", "serving"),
    vary("PS902", vllm_agg_dgd, {f"{WORKER}/runtimeVersionOverride": X})("1.6", "1.6.0"),
    vary("PS903", trtllm_disagg)(
        {"decode/image": f"{TRTLLM_IMAGE}:1.6.0"}, {"engine/image": f"{TRTLLM_IMAGE}:1.6.0"}
    ),
    vary("PS904", vllm_agg, {"worker/image": X})(
        f"{IMAGE}:1.3.1", f"{IMAGE}:1.4.2", also=("PS905",)
    ),
    # release 1.0 followed 0.9
    vary("PS904", vllm_agg, {"frontend/image": f"{IMAGE}:1.0.0", "worker/image": X})(
        f"{IMAGE}:0.7.0", f"{IMAGE}:0.9.0"
    ),
    vary("PS905", vllm_agg, {"worker/image": X})(f"{IMAGE}:1.5.0", f"{IMAGE}:1.6.0"),
    vary("PS910", vllm_agg, {"engine/image": X})(f"{IMAGE}:1.9.0", f"{IMAGE}:1.7.0"),
    vary("PS912", vllm_agg, {"engine/image": X})(
        f"{IMAGE}:1.6.1-cuda14",
        f"{IMAGE}:1.6.1-cuda13",
        fixed=vllm_agg({"engine/image": f"{IMAGE}:1.6.1"}),
    ),
    # vLLM 0.23 of Dynamo 1.3 still reads the variable
    vary("PS911", vllm_agg)(
        {"engine/image": f"{IMAGE}:1.3.1", **UNREAD},
        {"engine/image": f"{IMAGE}:1.3.1"},
        fixed=vllm_agg({"engine/image": f"{IMAGE}:1.3.1"}),
    ),
    vary("PS906", vllm_agg, {"engine/image": X})(
        f"{IMAGE}:1.4.2", f"{IMAGE}:1.5.0", is_repaired_by_near=True, also=("PS141",)
    ),
    # images of other builders may have the fixes
    vary("PS906", vllm_agg, {"engine/image": X})(
        f"{IMAGE}:0.5.0", "registry.local/vllm-runtime:0.5.0"
    ),
    Case(
        "PS907",
        alpha({}),
        vllm_agg_dgd(),
        fixed=deployment(
            component("vllm", *flags("openai/gpt-oss-120b", tensor_parallel_size=2), gpus=2)
        ),
    ),
    vary("PS908", alpha)({"autoscaling": {"enabled": True}}, {"scalingAdapter": {"enabled": True}}),
    vary("PS908", alpha)(
        {"dynamoNamespace": "case"},
        Words({}, {"envs": [{"name": "DYN_NAMESPACE", "value": "case"}]}),
    ),
)

CASES: tuple[Case, ...] = (*CHANGE, *VERSIONS)
