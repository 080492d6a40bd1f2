"""Rules about a limit of the tokens in the KV cache that the file itself sets."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
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
