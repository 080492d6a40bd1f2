"""Rules about kernels of SGLang, TensorRT-LLM and vLLM for KV cache types and experts."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import UNCHANGED, Versions
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

FA3_KEYS = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
DISPATCH = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DISPATCH_DEFAULT, DISPATCH_LARGEST = 128, 1024
GRAPH_SIZES = ("cuda-graph-max-bs-decode", "cuda-graph-max-bs")


@rule(
    id="PS225",
    title="fp8_e5m2 KV cache replaces FlashAttention 3",
    level=Level.WARNING,
    cause="SGLang's fa3 supports only fp8_e4m3 as a KV cache type of 8 bits.",
    effect="SGLang uses the slower Triton backend instead and only logs a warning.",
    remedy="Use fp8_e4m3.",
    source="sglang/srt/server_args.py 1481 of 0.5.6.post2, arg_groups/overrides.py 1210 of 0.5.21; "
    "sglang#18550",
    # 0.5.6 to 0.5.21; the pair of the issue is older than 0.5.8.
    versions=UNCHANGED,
    engines=(Engine.SGLANG,),
)
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


@rule(
    id="PS226",
    title="fp8 KV cache with pooled sparse attention on Hopper",
    level=Level.ERROR,
    cause="No kernel for Hopper reads an fp8 KV cache for models whose sparse attention pools the "
    "keys of its index (index_kpool above 1), such as GLM-5.3-Flash.",
    effect="The engine exits at startup: “MLA kv_data_type torch.uint8 is not supported”.",
    remedy="Remove kv-cache-dtype.",
    source="vllm#57713 (H100, September 2026; vLLM 0.28 does not have the model at all), "
    "sglang#36830, TensorRT-LLM#19136",
    versions=Versions(vllm=">=0.28,<0.31"),
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


@rule(
    id="PS228",
    title="Blackwell's MoE backend on another GPU",
    level=Level.ERROR,
    cause="The kernels of moe_config.backend TRTLLM exist only for SM 100 and 103.",
    effect="Every rank fails while it loads the weights.",
    remedy="Set moe_config.backend to CUTLASS.",
    source="TensorRT-LLM#17570 (nvbug 5986434; 1.3.0rc7 on H200)",
    versions=UNCHANGED,
    engines=(Engine.TRTLLM,),
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


@rule(
    id="PS230",
    title="decode batches exceed DeepEP's dispatch limit",
    level=Level.ERROR,
    cause="In low-latency mode DeepEP dispatches at most "
    "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK tokens of a GPU, 128 unless set, and SGLang "
    "captures CUDA graphs for larger batches. The limit itself can be at most 1024.",
    effect="The worker stops with DeepEP's assertion x.size(0) <= num_max_dispatch_tokens_per_rank "
    "while it captures the graphs.",
    remedy="Raise the variable to at least cuda-graph-max-bs.",
    source="sglang/srt/layers/moe/token_dispatcher/deepep.py 321-327 of 0.5.6.post2 and 394 of "
    "0.5.21, environ.py (EnvInt 128); sglang#14065, srt-slurm#44",
    versions=UNCHANGED,
    engines=(Engine.SGLANG,),
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
