"""Rules about the lengths of sequences, prompts and steps."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelShape
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

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


def no_context_length(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL, Role.WORKER):
        setting = worker.settings.common("context_length")
        if setting is None and worker.settings.is_complete and worker.engine is not Engine.MOCKER:
            model = deployment.model
            limit = f", {model.positions:,} tokens" if model else ""
            length = min(32768, model.positions) if model else 32768
            yield RuleResult(
                location=worker.settings.location("context_length"),
                message=f"no context length is set, so the engine uses the model's limit{limit}",
                why=_longest_kv(worker, model),
                fix=Fix(
                    text="Set the context length to the longest sequence that you expect.",
                    config={COMMON_SETTINGS["context_length"][worker.engine]: length},
                    graph={"model.context_length": length},
                ),
            )


def _longest_kv(worker: Worker, model: ModelShape | None) -> str:
    """The consequence with the KV of the longest sequence; empty if that is unknown."""
    kv_dtype = str(worker.value("kv_dtype") or "auto")
    block = worker.count("block_size") or 1
    size = model.kv_bytes(model.positions, block, kv_dtype) if model else None
    if model is None or size is None:
        return ""
    return (
        f"KV cache and transfer buffers are sized for that limit: one sequence of "
        f"{model.positions:,} tokens needs {size / 2**30:.1f} GiB of KV."
    )
