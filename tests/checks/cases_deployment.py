"""Cases of the DynamoGraphDeployment: names, types, operator rules (PS751 to PS774)."""

from __future__ import annotations

from typing import Any

from tests.checks.own_manifests import alpha, with_document
from tests.checks.support import (
    OMIT,
    REMOVE,
    Case,
    X,
    trtllm_disagg,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
    vllm_agg_dgd,
)

COMPONENTS = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
DECODE = f"{COMPONENTS}/decode"
WORKER = f"{COMPONENTS}/worker"
SCRIPT = {f"{WORKER}/{MAIN}/command": ["bash", "-c"]}
# Without a command, the operator runs `/bin/sh -c`.
SHELL = {f"{WORKER}/{MAIN}/command": REMOVE}
VLLM = "exec python3 -m dynamo.vllm --model openai/gpt-oss-120b"
FIRST = f"{COMPONENTS}/frontend/{MAIN}"
FRONTEND = {f"{FIRST}/command": REMOVE, f"{FIRST}/args": REMOVE}


NOTES = "dgd/metadata/annotations"
STRATEGY = "nvidia.com~1deployment-strategy"
GROVE = "nvidia.com~1grove-update-strategy"
MIN_AVAILABLE = {
    "apiVersion": "grove.io/v1alpha1",
    "target": "PodCliqueSet",
    "value": {"spec": {"minAvailable": 1}},
}
POLICY = "dgd/spec/experimental/kvTransferPolicy"
TRTLLM_IMAGE = "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime"
# Shadow engines in one pod, as the operator requires them.
IN_ONE_POD = {
    f"{NOTES}/nvidia.com~1dynamo-kube-discovery-mode": "container",
    f"{DECODE}/experimental/gpuMemoryService": {"mode": "IntraPod"},
    f"{DECODE}/experimental/failover": {"mode": "IntraPod"},
}
SCALED = {f"{DECODE}/replicas": REMOVE, f"{DECODE}/scalingAdapter": {}}
AGGREGATED = ["--model", "openai/gpt-oss-120b", "--extra-engine-args", "/etc/penstock/engine.yaml"]


def pod(kind: str, replicas: int = 1, image: str = f"{TRTLLM_IMAGE}:1.6.1") -> dict[str, Any]:
    """A component that runs its image's command: an endpoint picker, a planner, a frontend."""
    container = {"name": "main", "image": image, "command": ["python3", "-m", f"dynamo.{kind}"]}
    template = {"spec": {"containers": [container]}}
    return {"name": kind, "type": kind, "replicas": replicas, "podTemplate": template}


def many(count: int) -> dict[str, Any]:
    return {f"{COMPONENTS}/f{i}": {**pod("frontend"), "name": f"f{i}"} for i in range(count)}


def kind_of(kind: str) -> dict[str, Any]:
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": kind, "metadata": {"name": "snapshot"}}


CASES: tuple[Case, ...] = (
    vary("PS751", vllm_agg_dgd, {"dgd/metadata/name": X})("Case", "case-1"),
    # Service names begin with a letter
    vary("PS751", vllm_agg_dgd, {"dgd/metadata/name": X})("120b", "b120"),
    # too long with the suffix -frontend
    vary("PS751", vllm_agg_dgd, {"dgd/metadata/name": X})("a" * 55, "a" * 54),
    # the deployment's name + decode + decode-ldr
    vary(
        "PS752",
        trtllm_disagg_dgd,
        {"dgd/metadata/name": X, f"{DECODE}/multinode": {"nodeCount": 2}},
    )("a" * 30, "a" * 29, also=("PS205",)),
    vary("PS753", trtllm_disagg_dgd)(many(23), many(22), also=("PS774",)),
    vary("PS754", vllm_agg_dgd, {"dgd/spec/restart": X})({"id": "1"}, None),
    vary("PS755", vllm_agg_dgd)(
        {f"{NOTES}/nvidia.com~1current-worker-hash-v2": "0fddc01b"},
        {f"{NOTES}/nvidia.com~1enable-grove": "false"},
    ),
    vary("PS756", vllm_agg, {f"worker/annotations/{STRATEGY}": X})(
        "recreate", "Recreate", fixed=vllm_agg({f"worker/annotations/{STRATEGY}": "RollingUpdate"})
    ),
    vary("PS756", vllm_agg_dgd, {f"{NOTES}/{GROVE}": X})("Rolling", "OnDelete"),
    vary("PS756", alpha, {"annotations": {"nvidia.com/deployment-strategy": X}})(
        "Blue", "RollingUpdate"
    ),
    vary("PS757", vllm_agg_dgd, {"dgd/spec/backendFramework": X})("trtllm", REMOVE),
    vary("PS758", trtllm_disagg_dgd, {f"{DECODE}/{MAIN}/command": X})(
        ["python3", "-m", "dynamo.vllm"], ["python", "-m", "dynamo.trtllm"], also=("PS141", "PS775")
    ),
    # v1alpha1 has the field
    Case(
        "PS759",
        trtllm_disagg_dgd({**SCALED, f"{DECODE}/scalingAdapter": {"enabled": True}}),
        alpha({"scalingAdapter": {"enabled": True}}),
    ),
    vary("PS759", trtllm_disagg_dgd)(
        {**SCALED, f"{DECODE}/scalingAdapter": {"enabled": False}},
        SCALED,
        is_repaired_by_near=True,
        is_example=True,
    ),
    vary("PS760", vllm_agg_dgd)(
        {f"{WORKER}/minAvailable": 1},
        {f"{WORKER}/providerOverride": MIN_AVAILABLE},
        is_repaired_by_near=True,
    ),
    vary(
        "PS761",
        trtllm_disagg_dgd,
        {POLICY: {"domain": "rack", "labelKey": "rack", "clusterTopologyName": X}},
    )("dc", OMIT, is_repaired_by_near=True),
    vary(
        "PS761",
        trtllm_disagg_dgd,
        {
            POLICY: {
                "domain": "rack",
                "labelKey": "rack",
                "enforcement": "preferred",
                "preferredWeight": X,
            }
        },
    )(OMIT, 0),
    # the default of enforcement is required
    vary("PS761", trtllm_disagg_dgd, {POLICY: X})(
        {"domain": "rack", "labelKey": "rack", "preferredWeight": 0.5},
        {"domain": "rack", "labelKey": "rack", "enforcement": "required"},
    ),
    vary("PS762", trtllm_disagg_dgd)(
        {**IN_ONE_POD, f"{DECODE}/experimental/gpuMemoryService": REMOVE}, IN_ONE_POD
    ),
    vary(
        "PS762",
        trtllm_disagg_dgd,
        {**IN_ONE_POD, f"{DECODE}/experimental/gpuMemoryService": {"mode": X}},
    )("InterPod", OMIT),
    vary("PS762", trtllm_disagg_dgd)(
        {f"{DECODE}/experimental/gpuMemoryService": {}, f"{DECODE}/experimental/failover": {}},
        {
            f"{DECODE}/experimental/gpuMemoryService": {"mode": "InterPod"},
            f"{DECODE}/experimental/failover": {"mode": "InterPod"},
        },
    ),
    vary("PS768", vllm_agg_dgd)(
        {f"{COMPONENTS}/worker/replica": 3},
        {f"{COMPONENTS}/worker/replicas": 3},
        is_repaired_by_near=True,
    ),
    # the operator adds only python3
    vary("PS769", vllm_agg_dgd)(
        FRONTEND | {f"{FIRST}/args": ["--router-mode", "kv"]},
        FRONTEND | {f"{FIRST}/args": ["-m", "dynamo.frontend", "--router-mode", "kv"]},
        is_repaired_by_near=True,
    ),
    vary("PS769", vllm_agg_dgd, {f"{WORKER}/{MAIN}/command": X})(
        ["python3", "-m", "dynamo.vlm"], ["python3", "-m", "dynamo.vllm"]
    ),
    vary("PS769", vllm_agg_dgd, {f"{WORKER}/{MAIN}/command": X})(
        ["python3 -m dynamo.vllm"], ["python3", "-m", "dynamo.vllm"]
    ),
    # the operator runs `sh -c --model`
    vary("PS769", vllm_agg_dgd)(
        SHELL | {f"{WORKER}/{MAIN}/args": ["--model", "Qwen/Qwen3-0.6B"]},
        SHELL | {f"{WORKER}/{MAIN}/args": [VLLM]},
    ),
    # the operator runs `python3 "python3 -m dynamo.frontend"`
    vary("PS769", vllm_agg_dgd)(
        FRONTEND | {f"{FIRST}/args": ["python3 -m dynamo.frontend"]},
        FRONTEND | {f"{FIRST}/args": ["-m", "dynamo.frontend"]},
    ),
    vary("PS771", vllm_agg_dgd)(
        SCRIPT | {f"{WORKER}/{MAIN}/args": [VLLM, "--max-num-seqs", "64"]},
        SCRIPT | {f"{WORKER}/{MAIN}/args": [f'{VLLM} "$@"', "run", "--max-num-seqs", "64"]},
        also=("PS501", "PS602"),
    ),
    # the operator runs `sh -c python3` without the arguments
    vary("PS771", vllm_agg_dgd)(
        SHELL | {f"{WORKER}/{MAIN}/args": ["python3", "-m", "dynamo.vllm"]},
        {f"{WORKER}/{MAIN}/command": ["python3"], f"{WORKER}/{MAIN}/args": ["-m", "dynamo.vllm"]},
    ),
    # a loop over the arguments without a list
    vary("PS771", vllm_agg_dgd)(
        SCRIPT | {f"{WORKER}/{MAIN}/args": [VLLM, "run", "--seed", "1"]},
        SCRIPT | {f"{WORKER}/{MAIN}/args": [f"for a; do A+=$a; done; {VLLM} $A", "x", "--seed=1"]},
    ),
    vary("PS772", vllm_agg_dgd, {f"{WORKER}/{MAIN}/args": X})(
        ["--model", "hub/" + "é" * 128], ["--model", "/a/" * 99 + "e" * 255], also=("PS501",)
    ),
    # one argument
    vary("PS771", vllm_agg_dgd, {f"{WORKER}/{MAIN}/args": X})(
        ["--max-num-seqs=64 --max-model-len=4096"], ["--max-num-seqs=64", "--max-model-len=4096"]
    ),
    # a server that is not Dynamo's
    vary("PS770", vllm_agg_dgd, {f"{WORKER}/{MAIN}/command": X})(
        ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        ["python3", "-m", "dynamo.vllm"],
        is_repaired_by_near=True,
    ),
    vary("PS770", vllm_agg_dgd, {f"{WORKER}/{MAIN}/command": X})(
        ["python3", "worker.py"], ["python3", "-m", "dynamo.vllm"]
    ),
    # the image's entrypoint
    vary("PS770", vllm_agg_dgd)({f"{WORKER}/{MAIN}/command": REMOVE}, OMIT),
    # also in the pod
    vary("PS768", vllm_agg_dgd)(
        {f"{COMPONENTS}/worker/podTemplate/spec/tolerationz": []},
        {f"{COMPONENTS}/worker/podTemplate/spec/tolerations": []},
    ),
    vary("PS763", vllm_agg_dgd, {f"{COMPONENTS}/epp": X})(
        {**pod("epp", 2), "eppConfig": {}}, {**pod("epp", 1), "eppConfig": {}}
    ),
    vary("PS764", with_document, vllm_agg_dgd(), X)(
        kind_of("DynamoCheckpoint"), kind_of("PodSnapshot")
    ),
    vary("PS765", vllm_agg_dgd, {f"{COMPONENTS}/frontend": REMOVE, f"{COMPONENTS}/epp": X})(
        OMIT, pod("epp")
    ),
    vary("PS773", vllm_agg_dgd)({f"{WORKER}/type": REMOVE}, OMIT),
    vary("PS773", alpha, {"componentType": X})(None, OMIT, is_repaired_by_near=True),
    vary("PS786", alpha, {"componentType": X})("workr", OMIT, is_repaired_by_near=True),
    # a role of one's own that runs a worker
    vary("PS786", alpha, {"componentType": X})("reranker", "main"),  # in recipes of old releases
    vary("PS786", alpha, {"subComponentType": X})("prefil", "prefill"),
    vary("PS774", vllm_agg_dgd)(
        {f"{COMPONENTS}/second": {**pod("frontend"), "name": "second"}},
        {f"{COMPONENTS}/frontend/replicas": 2},
        is_repaired_by_near=True,
    ),
    vary("PS766", trtllm_disagg_dgd, {f"{COMPONENTS}/prefill": REMOVE, f"{DECODE}/{MAIN}/args": X})(
        OMIT, AGGREGATED
    ),
    vary("PS766", trtllm_disagg_dgd)({f"{COMPONENTS}/decode": REMOVE}, {f"{DECODE}/replicas": 0}),
    vary("PS767", trtllm_disagg_dgd, {f"{DECODE}/type": X})("prefill", "worker"),
    vary("PS767", trtllm_disagg, {"decode/args": X})(
        ["--disaggregation-mode", "agg"], ["--disaggregation-mode", "decode"]
    ),
    # PS143 reports a mode that does not exist
    vary("PS767", trtllm_disagg, {"decode/args": X})(
        ["--disaggregation-mode", "agg"], ["--disaggregation-mode", "decod"]
    ),
)
