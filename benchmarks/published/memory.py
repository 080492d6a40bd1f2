"""Whether gpt-oss fits on one GPU: the memory check of `penstock`, for each engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.hardware import GPUS, Gpu
from penstock.manifests.source import graph_source
from penstock.memory import MemoryBudget, memory_budget
from penstock.memory.budget import GIB
from penstock.memory.table import as_dict
from penstock.serving.memory import memory_inputs
from penstock.serving.understand import Hints, understand
from published.model import Case
from published.replays import part_result, significant

# 16 GB are 14.9 GiB; a card that is sold as 16 GB has 15.9 GiB.
SIXTEEN_GB, SIXTEEN_GIB = 16e9 / GIB, 15.9
GRAPH = """
model: {{id: openai/{model}}}
hardware: {{gpu: h100}}
engine: {{kind: {engine}, config: {config}}}
worker: {{replicas: 1, gpus: 1}}
"""
ENGINES = {"vLLM": "vllm", "TensorRT-LLM": "trtllm", "SGLang": "sglang"}
SMALLEST = (
    "{enforce-eager: true, max-num-seqs: 2, max-num-batched-tokens: 2048, "
    "gpu-memory-utilization: 0.95}"
)
# docs/llamacpp.md: the GGUF file in MXFP4; compute buffers and the CUDA context, assumed.
GGUF_GIB, BUFFERS_GIB = 12.1e9 / GIB, 1.0
# https://github.com/ggml-org/llama.cpp/discussions/15396, "Minimum requirements".
PUBLISHED_BUFFERS_GIB = 2.7e9 / GIB


def memory() -> dict[str, Any]:
    large = {
        f"{name} with default settings": budget("gpt-oss-120b", engine)
        for name, engine in ENGINES.items()
    }
    card = replace(GPUS["h100"], name="16-gb", memory_gib=SIXTEEN_GIB)
    strict = replace(card, memory_gib=SIXTEEN_GB)
    small = {
        "vLLM with its smallest settings, 15.9 GiB": budget("gpt-oss-20b", "vllm", card, SMALLEST),
        "vLLM with its smallest settings, 16 GB": budget("gpt-oss-20b", "vllm", strict, SMALLEST),
        "vLLM with default settings, 15.9 GiB": budget("gpt-oss-20b", "vllm", card),
        "TensorRT-LLM with default settings, 15.9 GiB": budget("gpt-oss-20b", "trtllm", card),
    }
    return part_result(
        {
            "one-80gb-gpu": [_case(name, one) for name, one in large.items()],
            "16-gb": [_llamacpp(), *(_case(name, one) for name, one in small.items())],
        },
        budgets={
            f"{model}, {name}": as_dict("worker", one)
            for model, found in (("gpt-oss-120b", large), ("gpt-oss-20b", small))
            for name, one in found.items()
        },
    )


def budget(model: str, engine: str, gpu: Gpu | None = None, config: str = "{}") -> MemoryBudget:
    """Of one worker on one GPU. ``gpu``: instead of an H100."""
    source = graph_source(GRAPH.format(model=model, engine=engine, config=config), "graph.yaml")
    deployment = understand(source, Hints())
    if gpu is not None:
        deployment = replace(deployment, gpu=gpu)
    inputs = memory_inputs(deployment, deployment.workers[0])
    assert inputs is not None
    return memory_budget(inputs)


def _case(assumption: str, found: MemoryBudget) -> Case:
    """What is left for the KV cache."""
    return Case(
        assumption=assumption,
        predicted=significant(found.pool_gib),
        low=significant(found.smallest.pool_gib),
        high=significant(found.largest.pool_gib),
    )


def _llamacpp() -> Case:
    """The lower end of the interval is with the buffers that llama.cpp's guide states."""
    left = SIXTEEN_GB - GGUF_GIB
    return Case(
        assumption="llama.cpp with a GGUF file in MXFP4, 16 GB",
        predicted=significant(left - BUFFERS_GIB),
        low=significant(left - PUBLISHED_BUFFERS_GIB),
        high=significant(left - BUFFERS_GIB),
    )
