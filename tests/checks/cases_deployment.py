"""Cases of the DynamoGraphDeployment: names, types, operator rules (PS751 to PS774)."""

from __future__ import annotations

from typing import Any

from tests.checks.own_manifests import alpha, with_document
from tests.checks.support import (
    REMOVE,
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
    Case(
        rule="PS751",
        bad=manifest(VLLM_AGG, {"dgd/metadata/name": "Case"}),
        near=manifest(VLLM_AGG, {"dgd/metadata/name": "case-1"}),
    ),
    Case(
        rule="PS751",  # Service names begin with a letter
        bad=manifest(VLLM_AGG, {"dgd/metadata/name": "120b"}),
        near=manifest(VLLM_AGG, {"dgd/metadata/name": "b120"}),
    ),
    Case(
        rule="PS751",  # too long with the suffix -frontend
        bad=manifest(VLLM_AGG, {"dgd/metadata/name": "a" * 55}),
        near=manifest(VLLM_AGG, {"dgd/metadata/name": "a" * 54}),
    ),
    Case(
        rule="PS752",  # the deployment's name + decode + decode-ldr
        bad=manifest(
            TRTLLM_DISAGG,
            {"dgd/metadata/name": "a" * 30, f"{DECODE}/multinode": {"nodeCount": 2}},
        ),
        near=manifest(
            TRTLLM_DISAGG,
            {"dgd/metadata/name": "a" * 29, f"{DECODE}/multinode": {"nodeCount": 2}},
        ),
        also=("PS205",),
    ),
    Case(
        rule="PS753",
        bad=manifest(TRTLLM_DISAGG, many(23)),
        near=manifest(TRTLLM_DISAGG, many(22)),
        also=("PS774",),
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
        fixed=graph(VLLM_AGG, {f"worker/annotations/{STRATEGY}": "RollingUpdate"}),
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
        also=("PS141", "PS775"),
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
        is_repaired_by_near=True,
        is_example=True,
    ),
    Case(
        rule="PS760",
        bad=manifest(VLLM_AGG, {f"{WORKER}/minAvailable": 1}),
        near=manifest(VLLM_AGG, {f"{WORKER}/providerOverride": MIN_AVAILABLE}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS761",
        bad=manifest(
            TRTLLM_DISAGG,
            {POLICY: {"domain": "rack", "labelKey": "rack", "clusterTopologyName": "dc"}},
        ),
        near=manifest(TRTLLM_DISAGG, {POLICY: {"domain": "rack", "labelKey": "rack"}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS761",
        bad=manifest(
            TRTLLM_DISAGG,
            {POLICY: {"domain": "rack", "labelKey": "rack", "enforcement": "preferred"}},
        ),
        near=manifest(
            TRTLLM_DISAGG,
            {
                POLICY: {
                    "domain": "rack",
                    "labelKey": "rack",
                    "enforcement": "preferred",
                    "preferredWeight": 0,
                }
            },
        ),
    ),
    Case(
        rule="PS761",  # the default of enforcement is required
        bad=manifest(
            TRTLLM_DISAGG, {POLICY: {"domain": "rack", "labelKey": "rack", "preferredWeight": 0.5}}
        ),
        near=manifest(
            TRTLLM_DISAGG,
            {POLICY: {"domain": "rack", "labelKey": "rack", "enforcement": "required"}},
        ),
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
        rule="PS768",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/worker/replica": 3}),
        near=manifest(VLLM_AGG, {f"{COMPONENTS}/worker/replicas": 3}),
        is_repaired_by_near=True,
    ),
    Case(  # the operator adds only python3
        rule="PS769",
        bad=manifest(VLLM_AGG, FRONTEND | {f"{FIRST}/args": ["--router-mode", "kv"]}),
        near=manifest(
            VLLM_AGG, FRONTEND | {f"{FIRST}/args": ["-m", "dynamo.frontend", "--router-mode", "kv"]}
        ),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS769",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": ["python3", "-m", "dynamo.vlm"]}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": ["python3", "-m", "dynamo.vllm"]}),
    ),
    Case(
        rule="PS769",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": ["python3 -m dynamo.vllm"]}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": ["python3", "-m", "dynamo.vllm"]}),
    ),
    Case(  # the operator runs `sh -c --model`
        rule="PS769",
        bad=manifest(VLLM_AGG, SHELL | {f"{WORKER}/{MAIN}/args": ["--model", "Qwen/Qwen3-0.6B"]}),
        near=manifest(VLLM_AGG, SHELL | {f"{WORKER}/{MAIN}/args": [VLLM]}),
    ),
    Case(  # the operator runs `python3 "python3 -m dynamo.frontend"`
        rule="PS769",
        bad=manifest(VLLM_AGG, FRONTEND | {f"{FIRST}/args": ["python3 -m dynamo.frontend"]}),
        near=manifest(VLLM_AGG, FRONTEND | {f"{FIRST}/args": ["-m", "dynamo.frontend"]}),
    ),
    Case(
        rule="PS771",
        bad=manifest(VLLM_AGG, SCRIPT | {f"{WORKER}/{MAIN}/args": [VLLM, "--max-num-seqs", "64"]}),
        near=manifest(
            VLLM_AGG,
            SCRIPT | {f"{WORKER}/{MAIN}/args": [f'{VLLM} "$@"', "run", "--max-num-seqs", "64"]},
        ),
        also=("PS501", "PS602"),
    ),
    Case(  # the operator runs `sh -c python3` without the arguments
        rule="PS771",
        bad=manifest(VLLM_AGG, SHELL | {f"{WORKER}/{MAIN}/args": ["python3", "-m", "dynamo.vllm"]}),
        near=manifest(
            VLLM_AGG,
            {
                f"{WORKER}/{MAIN}/command": ["python3"],
                f"{WORKER}/{MAIN}/args": ["-m", "dynamo.vllm"],
            },
        ),
    ),
    Case(  # a loop over the arguments without a list
        rule="PS771",
        bad=manifest(VLLM_AGG, SCRIPT | {f"{WORKER}/{MAIN}/args": [VLLM, "run", "--seed", "1"]}),
        near=manifest(
            VLLM_AGG,
            SCRIPT
            | {f"{WORKER}/{MAIN}/args": [f"for a; do A+=$a; done; {VLLM} $A", "x", "--seed=1"]},
        ),
    ),
    Case(
        rule="PS772",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/args": ["--model", "hub/" + "é" * 128]}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/args": ["--model", "/a/" * 99 + "e" * 255]}),
        also=("PS501",),
    ),
    Case(  # one argument
        rule="PS771",
        bad=manifest(
            VLLM_AGG, {f"{WORKER}/{MAIN}/args": ["--max-num-seqs=64 --max-model-len=4096"]}
        ),
        near=manifest(
            VLLM_AGG, {f"{WORKER}/{MAIN}/args": ["--max-num-seqs=64", "--max-model-len=4096"]}
        ),
    ),
    Case(  # a server that is not Dynamo's
        rule="PS770",
        bad=manifest(
            VLLM_AGG,
            {f"{WORKER}/{MAIN}/command": ["python3", "-m", "vllm.entrypoints.openai.api_server"]},
        ),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": ["python3", "-m", "dynamo.vllm"]}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS770",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": ["python3", "worker.py"]}),
        near=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": ["python3", "-m", "dynamo.vllm"]}),
    ),
    Case(  # the image's entrypoint
        rule="PS770",
        bad=manifest(VLLM_AGG, {f"{WORKER}/{MAIN}/command": REMOVE}),
        near=manifest(VLLM_AGG),
    ),
    Case(  # also in the pod
        rule="PS768",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/worker/podTemplate/spec/tolerationz": []}),
        near=manifest(VLLM_AGG, {f"{COMPONENTS}/worker/podTemplate/spec/tolerations": []}),
    ),
    Case(
        rule="PS763",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/epp": {**pod("epp", 2), "eppConfig": {}}}),
        near=manifest(VLLM_AGG, {f"{COMPONENTS}/epp": {**pod("epp", 1), "eppConfig": {}}}),
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
        rule="PS773",
        bad=manifest(VLLM_AGG, {f"{WORKER}/type": REMOVE}),
        near=manifest(VLLM_AGG),
    ),
    Case(
        rule="PS773",
        bad=alpha({"componentType": None}),
        near=alpha({}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS786",
        bad=alpha({"componentType": "workr"}),
        near=alpha({}),
        is_repaired_by_near=True,
    ),
    Case(  # a role of one's own that runs a worker
        rule="PS786",
        bad=alpha({"componentType": "reranker"}),
        near=alpha({"componentType": "main"}),  # in recipes of old releases
    ),
    Case(
        rule="PS786",
        bad=alpha({"subComponentType": "prefil"}),
        near=alpha({"subComponentType": "prefill"}),
    ),
    Case(
        rule="PS774",
        bad=manifest(VLLM_AGG, {f"{COMPONENTS}/second": {**pod("frontend"), "name": "second"}}),
        near=manifest(VLLM_AGG, {f"{COMPONENTS}/frontend/replicas": 2}),
        is_repaired_by_near=True,
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
    Case(  # PS143 reports a mode that does not exist
        rule="PS767",
        bad=graph(TRTLLM_DISAGG, {"decode/args": ["--disaggregation-mode", "agg"]}),
        near=graph(TRTLLM_DISAGG, {"decode/args": ["--disaggregation-mode", "decod"]}),
    ),
)
