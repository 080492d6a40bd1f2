"""Cases of vLLM's KV connectors, LMCache and SGLang's workers (PS441 to PS459)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, connector, deployment, flags, transfer
from tests.checks.support import OMIT, Case, Words, X, vary

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
    Case("PS441", pools(decode=(HMA,)), pools((HMA,), (HMA,))),
    # LMCache turns it off in one pool
    vary("PS441", pools)(
        transfer("MultiConnector", NIXL, LMCACHE), transfer("MultiConnector", NIXL, CPU)
    ),
    # before 0.23 it is off by default
    vary("PS441", pools, decode=X, version="1.2.0")((f"--no-{HMA[2:]}",), (HMA,)),
    Case(
        "PS442",
        pools(decode=("--attention-backend", "FLASHINFER"), prefill=("--dtype", "bfloat16"))
        .replace("--dtype\n", "--attention-backend\n")
        .replace("bfloat16", "FLASH_ATTN"),
        pools(decode=("--attention-backend", "FLASHINFER")),
    ),
    vary("PS442", pools, ("--dtype", "float16"), X)(("--dtype", "bfloat16"), ("--dtype", "half")),
    Case(
        "PS443",
        pools(
            transfer("PdConnector", KVBM, NIXL),
            transfer("NixlConnector", enable_cross_layers_blocks=True),
            version="1.1.1",
        ),
        pools(  # the layout is gone in 0.31
            transfer("PdConnector", KVBM, NIXL),
            transfer("NixlConnector", enable_cross_layers_blocks=True),
        ),
        fixed=pools(
            transfer("PdConnector", KVBM, NIXL), transfer("NixlConnector"), version="1.1.1"
        ),
    ),
    vary("PS446", pools, tp=X)((2, 3), (2, 4), also=("PS202", "PS219", "PS229")),
    # 2 KV heads in full-attention layers, 8 in the others
    vary("PS446", pools, model="google/gemma-4-26B-A4B-it", tp=X, version="1.4.0")((2, 4), (1, 2)),
    # 8 prefill GPUs hold copies of 4 KV heads
    vary("PS446", pools, model=SMALL_HEADS, tp=X)((8, 4), (4, 2)),
    # a recurrent model: the same TP in 0.19
    vary("PS446", pools, model=LINEAR, tp=(2, 1), version=X)("1.1.1", OMIT),
    vary("PS447", pools, model=LINEAR, env=X)(OMIT, DS),
)
CONNECTORS = (
    vary(
        "PS444",
        pools,
        transfer("MultiConnector", NIXL, CPU),
        transfer("MultiConnector", NIXL, CPU),
        env=X,
    )(
        OMIT,
        HOST,
        fixed=pools(
            transfer("MultiConnector", NIXL, CPU), transfer("MultiConnector", NIXL, CPU), env=HOST
        ).replace("value: 10.0.0.1", "valueFrom: {fieldRef: {fieldPath: status.podIP}}"),
    ),
    Case("PS444", pools(transfer("NixlPushConnector"), transfer("NixlPushConnector")), pools()),
    Case(
        "PS445",
        pools(("--kv-offloading-size", "64")),
        worker("--kv-offloading-size", "64"),
        fixed=pools(),
    ),
    # sliding windows: works, with more KV
    vary("PS448", worker, *transfer("LMCacheConnectorV1"), X, model=WINDOWED)(
        OMIT, HMA, fixed=worker(*transfer("NixlConnector"), model=WINDOWED)
    ),
    vary("PS448", worker, X, model=LINEAR)(
        Words(*transfer("LMCacheConnectorV1")), Words(*transfer("OffloadingConnector"))
    ),
    vary("PS448", worker, X, f"--no-{HMA[2:]}")(
        Words(*transfer("LMCacheConnectorV1")), Words(*transfer("OffloadingConnector"))
    ),
    vary("PS448", worker, *transfer("NixlConnector"), model=LINEAR, version=X)("1.2.0", "1.4.0"),
    vary("PS449", worker, "--kv-transfer-config", X)(
        '{"kv_connector":"NixlConector","kv_role":"kv_both"}',
        '{"kv_connector":"MyConnector","kv_role":"kv_both","kv_connector_module_path":"my"}',
        fixed=worker(*transfer("NixlConnector")),
    ),
    vary("PS449", worker)(
        Words("--kv-transfer-config", '{"kv_connector":"DynamoConnector","kv_role":"kv_both"}'),
        Words(*transfer("DynamoConnector")),
    ),
    Case("PS449", worker(*transfer("MultiConnector")), worker(*transfer("MultiConnector", NIXL))),
    vary("PS450", worker)(
        Words(
            *("--pipeline-parallel-size", "2", "--kv-transfer-config"),
            json.dumps({**NIXL, "kv_role": "kv_consumer"}),
        ),
        Words(*("--pipeline-parallel-size", "2"), *NIXL_ARGS),
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
    vary("PS452", cached, {**P2P, "LMCACHE_P2P_INIT_PORTS": X})("8200", "8200,8201"),
    vary("PS453", cached, X, replicas=2)(SHARED, {**SHARED, "PYTHONHASHSEED": "0"}),
    vary("PS453", cached, SHARED, replicas=X)(3, 1),  # a single worker shares nothing
    Case(
        "PS456",
        pools(decode=("--enable-hierarchical-cache",), kind="sglang"),
        pools(prefill=("--enable-hierarchical-cache",), kind="sglang"),
        fixed=pools(kind="sglang"),
        also=("PS422",),
    ),
    Case(
        "PS457",
        pools(prefill=("--enable-lmcache",), kind="sglang"),
        deployment(component("sglang", "--model-path", DENSE, "--enable-lmcache")),
        fixed=pools(kind="sglang"),
    ),
    Case(
        "PS458",
        pools(decode=("--pp-size", "2"), kind="sglang"),
        pools(("--pp-size", "2"), ("--pp-size", "2"), kind="sglang"),
        also=("PS205",),
    ),
    vary("PS459", pools, kind="sglang", model=X, env={"SGLANG_DISAGG_STAGING_BUFFER": "1"})(
        "deepseek-ai/DeepSeek-R1", OMIT
    ),
    vary(
        "PS455",
        pools,
        *(("--disaggregation-transfer-backend", "nixl"),) * 2,
        kind="sglang",
        limits={"vpc.amazonaws.com/efa": "1"},
        env=X,
    )(OMIT, {"SGLANG_DISAGGREGATION_NIXL_BACKEND": "LIBFABRIC"}),
    vary("PS455", pools, X, limits={"vpc.amazonaws.com/efa": "1"})(
        OMIT,
        Words(
            transfer("NixlConnector", backends=["LIBFABRIC"]),
            transfer("NixlConnector", backends=["LIBFABRIC"]),
        ),
    ),
    vary("PS473", pools, decode=X)(
        transfer("NixlConnector", backends=["LIBFABRIC"]),
        transfer("NixlConnector", backends=["UCX", "LIBFABRIC"]),
    ),
    # PS455 leaves the pool with UCX on EFA to it, and that pool is the one to change
    Case("PS473", pools(decode=LIBFABRIC, limits=EFA), pools(LIBFABRIC, LIBFABRIC, limits=EFA)),
)
CASES = NIXL_POOLS + CONNECTORS + OTHERS
