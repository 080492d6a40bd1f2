"""Cases of endpoint pickers, router flags, images, the webhook and multi-node NVLink."""

from __future__ import annotations

from typing import Any

from tests.checks.own_manifests import alpha
from tests.checks.support import OMIT, TRTLLM_AGG, Case, Words, X, manifest, vary, vllm_agg_dgd

COMPONENTS = "dgd/spec/components"
MAIN = "podTemplate/spec/containers/main"
WORKER, FRONTEND, EPP = (f"{COMPONENTS}/{name}" for name in ("worker", "frontend", "Epp"))
IMAGES = "nvcr.io/nvidia/ai-dynamo"
PREFIX = {"type": "prefix-cache-scorer", "name": "prefix"}
STANDALONE = {
    "DYN_EPP_MODE": "standalone",
    "DYN_EPP_INFERENCE_POOL_NAME": "pool",
    "DYN_MODEL_NAME": "openai/gpt-oss-120b",
    "DYN_KV_CACHE_BLOCK_SIZE": "64",
    "DYN_EPP_TOKENIZER_SERVICE_URL": "http://render:8000",
    "DYN_EPP_TOKENIZER_PROTOCOL": "vllm-render",
}
TOPOLOGY = {"clusterTopologyName": "cluster"}
RACK = {**TRTLLM_AGG, "hardware": {"gpu": "gb200", "gpus_per_node": 4}}
GMS = f"{WORKER}/experimental/gpuMemoryService"


def picker(env: dict[str, str], config: Any = None) -> dict[str, Any]:
    """An endpoint picker with variables and eppConfig."""
    container = {
        "name": "main",
        "image": f"{IMAGES}/dynamo-frontend:1.6.1",
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    component = {
        "name": "Epp",
        "type": "epp",
        "replicas": 1,
        "eppConfig": {"config": {"plugins": []}} if config is None else config,
        "podTemplate": {"spec": {"containers": [container]}},
    }
    return {EPP: component}


def with_picker(env: dict[str, str], config: Any = None) -> str:
    return vllm_agg_dgd(picker(env, config))


def prefix_blocks(tokens: int) -> str:
    plugin = {**PREFIX, "parameters": {"blockSizeTokens": tokens}}
    return with_picker({}, {"config": {"plugins": [plugin]}})


def sidecar(*args: str) -> str:
    container = {
        "name": "frontend",
        "image": f"{IMAGES}/dynamo-frontend:1.6.1",
        "args": ["-m", "dynamo.frontend", *args],
    }
    at = f"{WORKER}/podTemplate/spec/containers/frontend"
    return vllm_agg_dgd({**picker({}), f"{WORKER}/frontendSidecar": "frontend", at: container})


def frontend(*args: str) -> str:
    command = ["python3", "-m", "dynamo.frontend"]
    return vllm_agg_dgd(
        {f"{FRONTEND}/{MAIN}/command": command, f"{FRONTEND}/{MAIN}/args": list(args)}
    )


def variable(component: str, name: str, value: str) -> dict[str, Any]:
    return {f"{COMPONENTS}/{component}/{MAIN}/env/{name}/value": value}


ROUTING = (
    vary("PS530", with_picker, {"DYN_KV_CACHE_BLOCK_SIZE": X})("16", "64"),
    vary("PS531", with_picker, {"DYN_MODEL_NAME": X})("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
    vary("PS532", with_picker)(
        {"DYN_EPP_MODE": "standalone"}, STANDALONE, is_repaired_by_near=True
    ),
    vary("PS533", prefix_blocks)(1, 64, is_repaired_by_near=True),
    vary("PS534", sidecar, "--router-mode", X)("kv", "direct", is_repaired_by_near=True),
    vary("PS535", frontend, "--active-decode-blocks-threshold", X)("85", "0.85"),
    vary("PS536", frontend, "--serve-indexer", X)(
        OMIT, Words("--router-mode", "kv"), is_repaired_by_near=True, also=("PS503",)
    ),
    vary("PS537", vllm_agg_dgd)(
        variable("worker", "DYN_ROUTER_TEMPERATURE", "0.5"),
        variable("frontend", "DYN_ROUTER_TEMPERATURE", "0.5"),
        is_repaired_by_near=True,
    ),
)
DEPLOYMENT = (
    vary("PS775", vllm_agg_dgd, {f"{WORKER}/{MAIN}/image": X})(
        f"{IMAGES}/sglang-runtime:1.6.1", f"{IMAGES}/vllm-runtime:1.6.1-cuda13"
    ),
    vary("PS776", vllm_agg_dgd, {"dgd/spec/topologyConstraint": X})(
        TOPOLOGY, TOPOLOGY | {"packDomain": "rack"}, is_repaired_by_near=True
    ),
    vary(
        "PS776",
        vllm_agg_dgd,
        {f"{WORKER}/topologyConstraint": {"packDomain": "rack"}, "dgd/spec/topologyConstraint": X},
    )(OMIT, TOPOLOGY),
    vary("PS777", vllm_agg_dgd, {GMS: {"mode": "IntraPod", "extraClientContainers": X}})(
        ["side"], OMIT
    ),
    vary("PS778", with_picker, {}, {"config": X, "configMapRef": {"name": "epp"}})(
        {}, OMIT, is_repaired_by_near=True
    ),
    vary("PS779", vllm_agg_dgd, {GMS: {"mode": X}})(
        "intraPod", "IntraPod", is_repaired_by_near=True
    ),
    # a string in v1alpha1
    vary("PS779", alpha, {"resources": {"limits": {"gpu": X}}})(2, "2", is_repaired_by_near=True),
    vary("PS780", vllm_agg_dgd)(
        variable("worker", "DYN_DISCOVERY_BACKEND", "mem"),
        variable("worker", "DYN_DISCOVERY_BACKEND", "etcd"),
        also=("PS512",),
    ),
    vary("PS781", vllm_agg_dgd, {"dgd/spec/restart": {"id": "1", "strategy": {"order": X}}})(
        ["worker"], ["worker", "frontend"], is_repaired_by_near=True
    ),
)
FABRIC = (
    vary("PS460", manifest, RACK, X)(
        {f"{WORKER}/multinode": {"nodeCount": 2}} | variable("worker", "NCCL_MNNVL_ENABLE", "1"),
        {
            f"{WORKER}/multinode": {"nodeCount": 2},
            f"{WORKER}/podTemplate/spec/resourceClaims": [
                {"name": "channel", "resourceClaimTemplateName": "channel"}
            ],
        }
        | variable("worker", "NCCL_MNNVL_ENABLE", "1"),
    ),
    vary("PS461", manifest, RACK, X)(
        variable("worker", "UCX_TLS", "^cuda_ipc")
        | variable("worker", "UCX_CUDA_IPC_ENABLE_MNNVL", "1"),
        variable("worker", "UCX_TLS", "^tcp")
        | variable("worker", "UCX_CUDA_IPC_ENABLE_MNNVL", "1"),
        is_repaired_by_near=True,
    ),
)
CASES: tuple[Case, ...] = (*ROUTING, *DEPLOYMENT, *FABRIC)
