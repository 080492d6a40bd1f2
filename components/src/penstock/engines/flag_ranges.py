"""Flags whose number an engine refuses below 1, beyond what its parser checks.

Sources: the fields of SchedulerConfig, CacheConfig, ParallelConfig and ModelConfig of vLLM 0.31.0,
whose max_model_len also takes -1 (auto); the assertion in tp_worker.py of SGLang.
"""

from __future__ import annotations

from penstock.engines.flags import GivenFlag

POSITIVE = {
    "dynamo.vllm": frozenset(
        {
            *("max-num-seqs", "max-num-batched-tokens", "max-model-len", "block-size"),
            *("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"),
            *("decode-context-parallel-size", "prefill-context-parallel-size"),
        }
    ),
    "dynamo.sglang": frozenset({"max-running-requests"}),
}


def is_below_range(module: str, one: GivenFlag) -> bool:
    """Whether the engine refuses the number, which its parser reads."""
    if one.flag is None or one.flag.name not in POSITIVE.get(module, ()):
        return False
    return isinstance(one.value, int) and one.value < 1
