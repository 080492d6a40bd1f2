"""Cases of vLLM's KV connectors, LMCache and SGLang's workers (PS441 to PS459)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, connector, deployment, flags, transfer
from tests.checks.support import Case

DENSE, LINEAR, WINDOWED = "Qwen/Qwen3-8B", "Qwen/Qwen3.5-122B-A10B", "openai/gpt-oss-120b"
SMALL_HEADS = "Qwen/Qwen3-30B-A3B"  # 4 KV heads
NIXL, CPU = connector("NixlConnector"), connector("OffloadingConnector")
LMCACHE = connector("LMCacheConnectorV1")
KVBM = connector("DynamoConnector")
HMA = "--disable-hybrid-kv-cache-manager"
DS = {"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}
HOST = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"}


def pools(
    prefill: tuple[str, ...] = (),
    decode: tuple[str, ...] = (),
    *,
    model: str = DENSE,
    kind: str = "vllm",
    version: str = "1.6.1",
    tp: tuple[int, int] = (1, 1),
    **settings: Any,
) -> str:
    """Prefill and decode workers with NIXL, unless their arguments name another connector."""
    size = "tensor_parallel_size" if kind == "vllm" else "tp_size"
    components = []
    for name, pool_args, ranks in (("prefill", prefill, tp[0]), ("decode", decode, tp[1])):
        arguments = (
            pool_args
            if "--kv-transfer-config" in pool_args or kind != "vllm"
            else (*pool_args, *NIXL_ARGS)
        )
        args = (*flags(model, **{size: ranks}), "--disaggregation-mode", name, *arguments)
        if kind == "sglang":
            args = ("--model-path", *args[1:])
        components.append(
            component(kind, *args, name=name, version=version, gpus=ranks, **settings)
        )
    return deployment(*components, version=version)


NIXL_ARGS = transfer("NixlConnector")


def worker(*args: str, model: str = DENSE, kind: str = "vllm", **settings: Any) -> str:
    return deployment(component(kind, *flags(model), *args, **settings))


EFA = {"vpc.amazonaws.com/efa": "1"}
LIBFABRIC = transfer("NixlConnector", backends=["LIBFABRIC"])
NIXL_POOLS = (
    Case(rule="PS441", bad=pools(decode=(HMA,)), near=pools((HMA,), (HMA,))),
    Case(  # LMCache turns it off in one pool
        rule="PS441",
        bad=pools(transfer("MultiConnector", NIXL, LMCACHE)),
        near=pools(transfer("MultiConnector", NIXL, CPU)),
    ),
    Case(  # before 0.23 it is off by default
        rule="PS441",
        bad=pools(decode=(f"--no-{HMA[2:]}",), version="1.2.0"),
        near=pools(decode=(HMA,), version="1.2.0"),
    ),
    Case(
        rule="PS442",
        bad=pools(decode=("--attention-backend", "FLASHINFER"), prefill=("--dtype", "bfloat16"))
        .replace("--dtype\n", "--attention-backend\n")
        .replace("bfloat16", "FLASH_ATTN"),
        near=pools(decode=("--attention-backend", "FLASHINFER")),
    ),
    Case(
        rule="PS442",
        bad=pools(("--dtype", "float16"), ("--dtype", "bfloat16")),
        near=pools(("--dtype", "float16"), ("--dtype", "half")),
    ),
    Case(
        rule="PS443",
        bad=pools(
            transfer("PdConnector", KVBM, NIXL),
            transfer("NixlConnector", enable_cross_layers_blocks=True),
            version="1.1.1",
        ),
        near=pools(  # the layout is gone in 0.31
            transfer("PdConnector", KVBM, NIXL),
            transfer("NixlConnector", enable_cross_layers_blocks=True),
        ),
        fixed=pools(
            transfer("PdConnector", KVBM, NIXL), transfer("NixlConnector"), version="1.1.1"
        ),
    ),
    Case(
        rule="PS446", bad=pools(tp=(2, 3)), near=pools(tp=(2, 4)), also=("PS202", "PS219", "PS229")
    ),
    Case(  # 2 KV heads in full-attention layers, 8 in the others
        rule="PS446",
        bad=pools(model="google/gemma-4-26B-A4B-it", tp=(2, 4), version="1.4.0"),
        near=pools(model="google/gemma-4-26B-A4B-it", tp=(1, 2), version="1.4.0"),
    ),
    Case(  # 8 prefill GPUs hold copies of 4 KV heads
        rule="PS446",
        bad=pools(model=SMALL_HEADS, tp=(8, 4)),
        near=pools(model=SMALL_HEADS, tp=(4, 2)),
    ),
    Case(  # a recurrent model: the same TP in 0.19
        rule="PS446",
        bad=pools(model=LINEAR, tp=(2, 1), version="1.1.1"),
        near=pools(model=LINEAR, tp=(2, 1)),
    ),
    Case(
        rule="PS447",
        bad=pools(model=LINEAR),
        near=pools(model=LINEAR, env=DS),
    ),
)
CONNECTORS = (
    Case(
        rule="PS444",
        bad=pools(transfer("MultiConnector", NIXL, CPU), transfer("MultiConnector", NIXL, CPU)),
        near=pools(
            transfer("MultiConnector", NIXL, CPU),
            transfer("MultiConnector", NIXL, CPU),
            env=HOST,
        ),
        fixed=pools(
            transfer("MultiConnector", NIXL, CPU),
            transfer("MultiConnector", NIXL, CPU),
            env=HOST,
        ).replace("value: 10.0.0.1", "valueFrom: {fieldRef: {fieldPath: status.podIP}}"),
    ),
    Case(
        rule="PS444",
        bad=pools(transfer("NixlPushConnector"), transfer("NixlPushConnector")),
        near=pools(),
    ),
    Case(
        rule="PS445",
        bad=pools(("--kv-offloading-size", "64")),
        near=worker("--kv-offloading-size", "64"),
        fixed=pools(),
    ),
    Case(  # sliding windows: works, with more KV
        rule="PS448",
        bad=worker(*transfer("LMCacheConnectorV1"), model=WINDOWED),
        near=worker(*transfer("LMCacheConnectorV1"), HMA, model=WINDOWED),
        fixed=worker(*transfer("NixlConnector"), model=WINDOWED),
    ),
    Case(
        rule="PS448",
        bad=worker(*transfer("LMCacheConnectorV1"), model=LINEAR),
        near=worker(*transfer("OffloadingConnector"), model=LINEAR),
    ),
    Case(
        rule="PS448",
        bad=worker(*transfer("LMCacheConnectorV1"), f"--no-{HMA[2:]}"),
        near=worker(*transfer("OffloadingConnector"), f"--no-{HMA[2:]}"),
    ),
    Case(
        rule="PS448",
        bad=worker(*transfer("NixlConnector"), model=LINEAR, version="1.2.0"),
        near=worker(*transfer("NixlConnector"), model=LINEAR, version="1.4.0"),
    ),
    Case(
        rule="PS449",
        bad=worker("--kv-transfer-config", '{"kv_connector":"NixlConector","kv_role":"kv_both"}'),
        near=worker(
            "--kv-transfer-config",
            '{"kv_connector":"MyConnector","kv_role":"kv_both","kv_connector_module_path":"my"}',
        ),
        fixed=worker(*transfer("NixlConnector")),
    ),
    Case(
        rule="PS449",
        bad=worker(
            "--kv-transfer-config", '{"kv_connector":"DynamoConnector","kv_role":"kv_both"}'
        ),
        near=worker(*transfer("DynamoConnector")),
    ),
    Case(
        rule="PS449",
        bad=worker(*transfer("MultiConnector")),
        near=worker(*transfer("MultiConnector", NIXL)),
    ),
    Case(
        rule="PS450",
        bad=worker(
            *("--pipeline-parallel-size", "2", "--kv-transfer-config"),
            json.dumps({**NIXL, "kv_role": "kv_consumer"}),
        ),
        near=worker(*("--pipeline-parallel-size", "2"), *NIXL_ARGS),
        also=("PS205",),
    ),
)
EVENTS = '{"publisher":"zmq","endpoint":"tcp://*:%d","enable_kv_cache_events":true}'


P2P = {"LMCACHE_ENABLE_P2P": "true", "PYTHONHASHSEED": "0"}
SHARED = {"LMCACHE_REMOTE_URL": "redis://cache:6379"}


def cached(env: dict[str, str], **settings: Any) -> str:
    args = transfer("LMCacheConnectorV1")
    return worker("--tensor-parallel-size", "2", *args, gpus=2, env=env, **settings)


OTHERS = (
    Case(
        rule="PS452",
        bad=cached({**P2P, "LMCACHE_P2P_INIT_PORTS": "8200"}),
        near=cached({**P2P, "LMCACHE_P2P_INIT_PORTS": "8200,8201"}),
    ),
    Case(
        rule="PS453",
        bad=cached(SHARED, replicas=2),
        near=cached({**SHARED, "PYTHONHASHSEED": "0"}, replicas=2),
    ),
    Case(  # a single worker shares nothing
        rule="PS453", bad=cached(SHARED, replicas=3), near=cached(SHARED, replicas=1)
    ),
    Case(
        rule="PS456",
        bad=pools(decode=("--enable-hierarchical-cache",), kind="sglang"),
        near=pools(prefill=("--enable-hierarchical-cache",), kind="sglang"),
        fixed=pools(kind="sglang"),
        also=("PS422",),
    ),
    Case(
        rule="PS457",
        bad=pools(prefill=("--enable-lmcache",), kind="sglang"),
        near=deployment(component("sglang", "--model-path", DENSE, "--enable-lmcache")),
        fixed=pools(kind="sglang"),
    ),
    Case(
        rule="PS458",
        bad=pools(decode=("--pp-size", "2"), kind="sglang"),
        near=pools(("--pp-size", "2"), ("--pp-size", "2"), kind="sglang"),
        also=("PS205",),
    ),
    Case(
        rule="PS459",
        bad=pools(
            kind="sglang",
            model="deepseek-ai/DeepSeek-R1",
            env={"SGLANG_DISAGG_STAGING_BUFFER": "1"},
        ),
        near=pools(kind="sglang", env={"SGLANG_DISAGG_STAGING_BUFFER": "1"}),
    ),
    Case(
        rule="PS455",
        bad=pools(
            *(("--disaggregation-transfer-backend", "nixl"),) * 2,
            kind="sglang",
            limits={"vpc.amazonaws.com/efa": "1"},
        ),
        near=pools(
            *(("--disaggregation-transfer-backend", "nixl"),) * 2,
            kind="sglang",
            limits={"vpc.amazonaws.com/efa": "1"},
            env={"SGLANG_DISAGGREGATION_NIXL_BACKEND": "LIBFABRIC"},
        ),
    ),
    Case(
        rule="PS455",
        bad=pools(limits={"vpc.amazonaws.com/efa": "1"}),
        near=pools(
            transfer("NixlConnector", backends=["LIBFABRIC"]),
            transfer("NixlConnector", backends=["LIBFABRIC"]),
            limits={"vpc.amazonaws.com/efa": "1"},
        ),
    ),
    Case(
        rule="PS473",
        bad=pools(decode=transfer("NixlConnector", backends=["LIBFABRIC"])),
        near=pools(decode=transfer("NixlConnector", backends=["UCX", "LIBFABRIC"])),
    ),
    Case(  # PS455 leaves the pool with UCX on EFA to it, and that pool is the one to change
        rule="PS473",
        bad=pools(decode=LIBFABRIC, limits=EFA),
        near=pools(LIBFABRIC, LIBFABRIC, limits=EFA),
    ),
)
CASES = NIXL_POOLS + CONNECTORS + OTHERS
