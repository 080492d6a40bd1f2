"""SGLang's KV transfer between pools of different attention TP, and its decode workers."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checks.rules.kv_transfer.transfer import is_on
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

STAGING = "SGLANG_DISAGG_STAGING_BUFFER"
# Models that keep one latent for all heads, although their configuration is not that of MLA.
ONE_LATENT = ("deepseek_v4", "deepseek_v41_text", "deepseek_ref", "glm5_next_text")


def attention_tp(worker: Worker) -> int:
    """GPUs that share the KV heads of a sequence."""
    return max(1, worker.tp // worker.attention_ranks)


def unequal_pairs(
    deployment: ServingDeployment, backend: str
) -> Iterator[tuple[Worker, Worker, ModelFacts]]:
    """Prefill and decode workers with different attention TP that transfer single KV heads."""
    for prefill, decode in deployment.pairs:
        facts = deployment.facts_of(decode)
        if decode.engine is not Engine.SGLANG or facts is None or not facts.kv_heads:
            continue
        has_one_latent = facts.is_mla or facts.kind in ONE_LATENT
        is_used = all(_transfers_heads(worker, backend) for worker in (prefill, decode))
        if is_used and not has_one_latent and attention_tp(prefill) != attention_tp(decode):
            yield prefill, decode, facts


def _transfers_heads(worker: Worker, backend: str) -> bool:
    """Whether the backend transfers them, without the staging buffer, which gathers them."""
    used = str(worker.get("disaggregation-transfer-backend") or "mooncake")
    stages = is_on(worker, STAGING) or STAGING in worker.launch.unknown_variables
    return worker.is_laid_out and worker.settings.is_complete and used == backend and not stages


def decode_radix_cache(worker: Worker) -> bool:
    """Whether it is a decode worker whose radix cache is enabled."""
    is_enabled = worker.get("disaggregation-decode-enable-radix-cache") is True
    return worker.role is Role.DECODE and is_enabled


def same_tp(prefill: Worker, decode: Worker) -> str:
    """How to give both the same attention TP."""
    if decode.tp != prefill.tp:
        return f"Use the same TP and number of GPUs on {prefill.name} and {decode.name}."
    if prefill.has_attention_dp:
        return (
            f"Set dp-size {prefill.attention_ranks} and enable-dp-attention on {decode.name} "
            f"as on {prefill.name}."
        )
    return f"Remove enable-dp-attention from {decode.name}, as {prefill.name} lacks it."
