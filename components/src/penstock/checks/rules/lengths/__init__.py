"""What limits the lengths of sequences, prompts and steps."""

from __future__ import annotations

from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.memory import TOKEN_LIMITS
from penstock.serving.worker import Worker
from penstock.text.values import positive_int

KERNEL_BLOCK = 16  # tokens; attention backends need blocks of a multiple of it
CONTEXT_PARALLEL = ("dcp-size", "attn-cp-size")  # SGLang's, whose ranks share a sequence
# Keys that may extend the context beyond the positions in config.json (RoPE scaling).
EXTENDED = ("hf-overrides", "json-model-override-args", "model_kwargs")
# Variables with which an engine accepts the length and only logs a warning.
ALLOWS_LONGER = {
    Engine.VLLM: "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    Engine.SGLANG: "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    Engine.TRTLLM: "TLLM_ALLOW_LONG_MAX_MODEL_LEN",
}


def chunks_prompts(worker: Worker) -> bool | None:
    """Whether prefill is chunked; None where the engine decides by model and GPU."""
    if worker.is_trtllm:
        return worker.get("enable_chunked_prefill") is True
    if worker.engine is Engine.VLLM:
        return worker.get("enable-chunked-prefill") is not False
    return None


def exceeds_positions(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether its context length exceeds the model's limit, and no setting extends the limit."""
    limit, length = deployment.model and deployment.model.positions, worker.count("context_length")
    is_extended = any(worker.get(key) for key in EXTENDED)
    return bool(limit and length and length > limit and not is_extended)


def cache_limit(worker: Worker) -> int | None:
    """The most tokens that the file lets the KV cache hold; None without a limit, or if it is not
    certain: a rank of context parallelism has a part of each sequence."""
    limit = positive_int(worker.get(TOKEN_LIMITS.get(worker.engine, "")))
    is_shared = worker.engine is Engine.SGLANG and any(map(worker.get, CONTEXT_PARALLEL))
    has_windows = worker.get("kv_cache_config.max_attention_window") is not None
    if limit is None or is_shared or has_windows or not worker.settings.is_complete:
        return None
    block = worker.count("block_size") if worker.engine is Engine.VLLM else 1
    return limit * block * worker.dcp * worker.cp if block else None


def smallest_block(worker: Worker, layers: ModelFacts | None) -> int | None:
    """Tokens of the smallest block that vLLM can choose for recurrent layers; None if unknown.

    A KV cache type of one byte, and backends with larger blocks, only raise it.
    """
    page = layers.recurrent.page_bytes(worker.tp) if layers and layers.recurrent else None
    if layers is None or page is None or not layers.kv_heads or len(layers.head_sizes) != 1:
        return None
    token = 2 * max(1, layers.kv_heads // worker.tp) * layers.head_sizes[0] * 2
    return -(-page // (KERNEL_BLOCK * token)) * KERNEL_BLOCK


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least ``least``."""
    return 1 << (least - 1).bit_length()
