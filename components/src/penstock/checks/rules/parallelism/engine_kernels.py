"""Rules about kernels of SGLang, TensorRT-LLM and vLLM for KV cache types and experts."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

FA3_KEYS = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
DISPATCH = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DISPATCH_DEFAULT, DISPATCH_LARGEST = 128, 1024
GRAPH_SIZES = ("cuda-graph-max-bs-decode", "cuda-graph-max-bs")


def e5m2_with_fa3(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.SGLANG and worker.get("kv-cache-dtype") == "fp8_e5m2":
            if worker.get(FA3_KEYS[0]) == "fa3":
                yield RuleResult(
                    location=worker.settings.location("kv_dtype"),
                    message="attention-backend fa3 does not support kv-cache-dtype fp8_e5m2",
                    fix=Fix(
                        text="Set kv-cache-dtype to fp8_e4m3.",
                        config={"kv-cache-dtype": "fp8_e4m3"},
                    ),
                )


def fp8_with_pooled_index(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers if gpu is not None and gpu.is_hopper else ():
        facts = deployment.facts_of(worker)
        dtype = str(worker.value("kv_dtype") or "auto")
        is_pooled = facts is not None and (facts.index_pool or 0) > 1
        if worker.engine is Engine.VLLM and is_pooled and dtype.startswith("fp8"):
            yield RuleResult(
                location=worker.settings.location("kv_dtype"),
                message=f"{worker.value('model')} has no kernels for kv-cache-dtype {dtype} on "
                "Hopper",
                fix=Fix(text="Remove kv-cache-dtype.", config={"kv-cache-dtype": None}),
            )


def blackwell_experts(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    key = "moe_config.backend"
    for worker in deployment.workers if gpu is not None and not gpu.is_blackwell else ():
        facts = deployment.facts_of(worker)
        # For weights of 16 bits TensorRT-LLM replaces the backend; PS212 is about MXFP4.
        is_block_scaled = facts is not None and facts.weight_block is not None
        if worker.is_trtllm and is_block_scaled and worker.get(key) == "TRTLLM" and gpu:
            yield RuleResult(
                location=worker.config_location(key),
                message=f"MoE backend TRTLLM has no kernels for {gpu.name} (SM {gpu.sm})",
                fix=Fix(text=f"Set {key} to CUTLASS.", config={key: "CUTLASS"}),
            )


def dispatch_limit(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.DECODE, Role.WORKER):
        if not _dispatches(worker) or DISPATCH in worker.launch.unknown_variables:
            continue
        text = worker.env(DISPATCH)
        limit = DISPATCH_DEFAULT if text is None else positive_int(_number(text))
        batch = next((n for key in GRAPH_SIZES if (n := positive_int(worker.get(key)))), 0)
        if limit is None or (batch <= limit <= DISPATCH_LARGEST):
            continue
        needed = min(batch, DISPATCH_LARGEST)
        too_high = limit > DISPATCH_LARGEST
        yield RuleResult(
            location=worker.location("env", DISPATCH)
            if text is not None
            else worker.config_location(next(k for k in GRAPH_SIZES if worker.get(k))),
            message=f"{DISPATCH} is {limit}, but DeepEP allows at most {DISPATCH_LARGEST}"
            if too_high
            else f"CUDA graphs have up to {batch} sequences, but {DISPATCH} is "
            f"{text or f'{DISPATCH_DEFAULT} by default'}",
            fix=Fix(text=f"Set {DISPATCH}={needed or limit}.", env={DISPATCH: str(needed)})
            if batch <= DISPATCH_LARGEST and needed
            else Fix(text=f"Lower cuda-graph-max-bs and {DISPATCH} to {DISPATCH_LARGEST}."),
        )


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _dispatches(worker: Worker) -> bool:
    """Whether each GPU dispatches the tokens of its own sequences in low-latency mode."""
    return (
        worker.engine is Engine.SGLANG
        and worker.get("moe-a2a-backend") == "deepep"
        and worker.get("deepep-mode") in (None, "auto", "low_latency")
        and worker.has_attention_dp
        and worker.attention_ranks == worker.tp
        and worker.get("disable-cuda-graph") is not True
    )
