"""Flags by which vLLM, SGLang and TensorRT-LLM name the same setting."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

# The parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21.
SAME: Sequence[Sequence[str]] = (
    ("--model", "--model-path"),
    ("--tensor-parallel-size", "--tp-size", "--tp"),
    ("--pipeline-parallel-size", "--pp-size", "--pp"),
    ("--data-parallel-size", "--dp-size", "--dp"),
    ("--max-model-len", "--context-length", "--max-seq-len"),
    ("--max-num-seqs", "--max-running-requests", "--max-batch-size"),
    ("--block-size", "--page-size", "--kv-block-size"),
)
# The engines count other parts of the memory, or other tokens.
SIMILAR: Sequence[Sequence[str]] = (
    ("--gpu-memory-utilization", "--mem-fraction-static", "--free-gpu-memory-fraction"),
    ("--max-num-batched-tokens", "--chunked-prefill-size", "--max-num-tokens"),
)
# Flags that only documentation names, and what to write instead of each.
ONLY_DOCUMENTED = {
    # README files and an error message of 1.0.
    "--direct-route": "--router-mode direct, which Dynamo has since 1.0",
}


def same_meaning(flag: str, known: Container[str], groups: Iterable[Sequence[str]]) -> str | None:
    """The flag among ``known`` that is in the same group."""
    group: Sequence[str] = next((names for names in groups if flag in names), ())
    return next((name for name in group if name != flag and name in known), None)
