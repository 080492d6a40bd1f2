"""Rules about a limit of the tokens in the KV cache that the file itself sets."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import UNCHANGED, Versions
from penstock.manifests.deployment import Engine
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

WINDOWS = "kv_cache_config.max_attention_window"
CONTEXT_PARALLEL = ("dcp-size", "attn-cp-size")  # SGLang's, whose ranks share a sequence
LIMITS = {
    Engine.SGLANG: "max-total-tokens",
    Engine.TRTLLM: "kv_cache_config.max_tokens",
    Engine.VLLM: "num-gpu-blocks-override",
}
EFFECTS = {
    Engine.SGLANG: "SGLang refuses longer prompts and cuts output at the limit; requests may also "
    "wait in the queue until the client gives up.",
    Engine.TRTLLM: "TensorRT-LLM lowers the longest sequence to the limit, with a warning in its "
    "log, and refuses longer requests.",
    Engine.VLLM: "Since 0.20, vLLM refuses to start. Earlier versions start, and leave longer "
    "requests in the queue.",
}
# Since 0.20, vLLM compares the limit with the context length at startup.
LEVELS = (
    (Versions(vllm="<0.20"), Level.WARNING),
    (Versions(vllm=">=0.20"), Level.ERROR),
)


@rule(
    id="PS127",
    title="the KV cache is limited to less than one sequence",
    level=Level.WARNING,
    cause="The limit of tokens in the KV cache is below the context length of the worker: SGLang's "
    "max-total-tokens, TensorRT-LLM's kv_cache_config.max_tokens, or vLLM's "
    "num-gpu-blocks-override times its block size.",
    effect="SGLang and TensorRT-LLM refuse or cut requests that the context length allows, or "
    "leave them in the queue. vLLM exits at startup, and before 0.20 leaves them in the queue.",
    remedy="Raise the limit to the context length, or remove it.",
    source="dynamo#9230; max_req_len in sglang/srt/managers/tp_worker.py of 0.5.6.post2 to 0.5.21; "
    "validate_and_adjust_attention_windows in TensorRT-LLM; get_kv_cache_configs in "
    "vllm/v1/core/kv_cache_utils.py 1982-2001 of 0.20.1 and of 0.33.0",
    versions=UNCHANGED,
    engines=(Engine.TRTLLM, Engine.VLLM, Engine.SGLANG),
    other_levels=(Level.ERROR,),
    exceptions="Nothing is reported without a context length in the file, nor for TensorRT-LLM "
    "with max_attention_window, whose windows have capacities of their own. With vLLM since 0.20 "
    "it is an error.",
)
def less_than_one_sequence(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        key, length = LIMITS.get(worker.engine, ""), worker.count("context_length")
        tokens = _capacity(worker, key) if key else None
        if not tokens or not length or tokens >= length:
            continue
        least = -(-length // (tokens // (positive_int(worker.get(key)) or 1)))
        for versions, level in LEVELS if worker.engine is Engine.VLLM else ((None, None),):
            yield RuleResult(
                location=worker.config_location(key),
                message=f"{key} limits the KV cache to {tokens:,} tokens, but the context length "
                f"is {length:,}",
                fix=Fix(text=f"Remove {key}, or set it to at least {least}.", config={key: None}),
                why=EFFECTS[worker.engine],
                versions=versions,
                level=level,
            )


def _capacity(worker: Worker, key: str) -> int | None:
    """The most tokens in the cache; None without a limit, or if it is not certain."""
    limit = positive_int(worker.get(key))
    if limit is None or not worker.settings.is_complete or worker.get(WINDOWS) is not None:
        return None
    if worker.engine is Engine.SGLANG and any(worker.get(key) for key in CONTEXT_PARALLEL):
        return None
    # A rank of context parallelism has a part of each sequence.
    ranks = worker.dcp * worker.cp
    if worker.engine is not Engine.VLLM:
        return limit * ranks
    block = worker.count("block_size")
    return limit * block * ranks if block else None
