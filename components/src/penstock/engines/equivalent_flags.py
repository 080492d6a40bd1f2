"""How vLLM, SGLang and TensorRT-LLM name the same setting, and which engine has a name."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import cache

from penstock.engines.flags import flag_table, load
from penstock.manifests.deployment import Engine

# The parsers of ai-dynamo 1.6.1, vLLM 0.31.0 and SGLang 0.5.21, and keys of TensorRT-LLM's file.
SAME: Sequence[Sequence[str]] = (
    ("--model", "--model-path"),
    ("--tokenizer", "--tokenizer-path"),
    ("--tensor-parallel-size", "--tp-size", "--tp"),
    ("--pipeline-parallel-size", "--pp-size", "--pp"),
    ("--data-parallel-size", "--dp-size", "--dp"),
    ("--expert-parallel-size", "--ep-size", "--ep", "--moe-expert-parallel-size"),
    ("--enable-attention-dp", "--enable-dp-attention"),
    ("--max-model-len", "--context-length", "--max-seq-len"),
    ("--max-num-seqs", "--max-running-requests", "--max-batch-size"),
    ("--block-size", "--page-size", "--kv-block-size"),
    ("--mamba-ssm-cache-dtype", "--mamba-ssm-dtype"),
    ("--enable-log-requests", "--log-requests"),
    ("--disable-overlap-schedule", "--disable-overlap-scheduler"),
    ("--enable-layerwise-nvtx-tracing", "--enable-layerwise-nvtx-marker"),
)
# Similar settings: the engines count other parts of the memory or other tokens, or name the values
# differently.
SIMILAR: Sequence[Sequence[str]] = (
    ("--gpu-memory-utilization", "--mem-fraction-static", "--free-gpu-memory-fraction"),
    ("--max-num-batched-tokens", "--chunked-prefill-size", "--max-num-tokens"),
    ("--max-num-queued-reqs", "--max-queued-requests"),
    ("--attention-backend", "--attn-backend"),
    ("--scheduling-policy", "--schedule-policy"),
    ("--reasoning-parser", "--dyn-reasoning-parser"),
    ("--tool-call-parser", "--dyn-tool-call-parser"),
)
# Flags that only documentation names, and what to write instead of each.
ONLY_DOCUMENTED = {
    # README files and an error message of 1.0.
    "--direct-route": "--router-mode direct, which Dynamo has since 1.0"
}
_MODULES = tuple(engine.module for engine in (Engine.VLLM, Engine.SGLANG, Engine.TRTLLM))


def same_meaning(flag: str, known: Container[str], groups: Iterable[Sequence[str]]) -> str | None:
    """The flag among ``known`` that is in the same group."""
    group: Sequence[str] = next((names for names in groups if flag in names), ())
    return next((name for name in group if name != flag and name in known), None)


def owner(flag: str) -> str:
    """What a flag is elsewhere: `a flag of dynamo.sglang`, or `a key of TensorRT-LLM's engine
    file`; empty if no engine has it."""
    modules = [module for module in _MODULES if flag in _flags(module)]
    if modules:
        return f"a flag of {' and '.join(modules)}"
    keys = load("trtllm_arguments.json")["file"]["keys"]
    is_key = flag.removeprefix("--").replace("-", "_") in keys
    return "a key of TensorRT-LLM's engine file" if is_key else ""


@cache
def _flags(module: str) -> Container[str]:
    table = flag_table(module)
    return table.by_spelling if table else ()
