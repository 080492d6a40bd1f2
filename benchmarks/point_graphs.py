"""A measured point as a graph and a workload that `penstock simulate` can replay.

What a source does not state follows the rules below, the same for every point of an engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.manifests.source import graph_source
from penstock.serving.understand import Hints
from penstock.simulate.interval import layers_of
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import replayable
from penstock.simulate.timing import measured_models
from penstock.workload.model import Arrival, Lengths, Workload

Point = Mapping[str, str]
CONTEXT_MARGIN = 512  # tokens of the context above input and output
CLOSED_LOOP = 4  # requests of each client of a closed loop, at least MIN_REQUESTS in total
MIN_REQUESTS = 32
MAX_QUEUED = 3000  # of an offline run or a burst
POISSON_REQUESTS = 300
# Distribution of lengths by `length_spread`: (mean as a share of the nominal length, coefficient
# of variation) of input and output. Uniform from 0.8 to 1.0 of the nominal length is a fact; a
# coefficient of 1 for conversations and 0.5 for outputs that end at EOS are assumptions.
EXACT, VARIED = (1.0, 0.0), (1.0, 1.0)
SPREADS = {
    "": (EXACT, EXACT),
    "exact": (EXACT, EXACT),
    "0.8-1.0": ((0.9, 0.064), (0.9, 0.064)),
    "sharegpt": (VARIED, VARIED),
    "dataset": (VARIED, VARIED),
    "exact input; output ends at EOS": (EXACT, (1.0, 0.5)),
}
VARIED_CONTEXT = 8  # times the mean length, the context where lengths vary
# The checkpoint by model and precision: one that AISimulate has, or the layers of one with another
# quantization of ModelOpt.
LLAMA_70B, LLAMA_405B = "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-405B"
CHECKPOINTS = {
    ("gpt-oss-120b", "mxfp4"): ("openai/gpt-oss-120b", ""),
    ("gpt-oss-20b", "mxfp4"): ("openai/gpt-oss-20b", ""),
    ("Llama-70B", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", ""),
    ("Llama-70B", "fp4"): (LLAMA_70B, "NVFP4"),
    ("Llama-405B", "fp8"): (LLAMA_405B, "FP8"),
    ("Llama-405B", "fp4"): (LLAMA_405B, "NVFP4"),
    ("Llama-8B", ""): ("meta-llama/Meta-Llama-3.1-8B", ""),
    ("Llama-8B", "fp8"): ("meta-llama/Meta-Llama-3.1-8B", "FP8"),
    ("DeepSeek-V3", "fp8"): ("deepseek-ai/DeepSeek-R1", ""),
    ("DeepSeek-V3", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", ""),
    ("DeepSeek-V3.2", "fp8"): ("deepseek-ai/DeepSeek-V3.2", ""),
    ("Qwen3-235B-A22B", "fp8"): ("Qwen/Qwen3-235B-A22B-FP8", ""),
    ("Qwen3-235B-A22B", "bf16"): ("Qwen/Qwen3-235B-A22B", ""),
    ("Qwen3-235B-A22B", "fp4"): ("nvidia/Qwen3-235B-A22B-NVFP4", ""),
    ("Qwen3-30B-A3B", "bf16"): ("Qwen/Qwen3-30B-A3B", ""),
    ("Qwen3-30B-A3B", "fp4"): ("Qwen/Qwen3-30B-A3B", "NVFP4"),
    ("Qwen3-32B", ""): ("Qwen/Qwen3-32B", ""),
    ("Qwen3-32B", "bf16"): ("Qwen/Qwen3-32B", ""),
    ("Qwen3-32B", "fp8"): ("Qwen/Qwen3-32B-FP8", ""),
    ("Qwen3-8B", "bf16"): ("Qwen/Qwen3-8B", ""),
}
# NVIDIA measures its own checkpoint, where CHECKPOINTS has Qwen's with another kind of FP8.
NVIDIA = {("Qwen3-235B-A22B", "fp8"): ("Qwen/Qwen3-235B-A22B", "FP8")}


def model_of(point: Point) -> str:
    return layers_of(point["model"])


def reason_against(point: Point) -> str:
    """Why a point is not replayed; empty if it is."""
    if point["mode"] != "aggregated":
        return "disaggregated"
    if point["speculative"] not in ("", "none"):
        return "speculative decoding"
    if point["length_spread"] not in SPREADS or point["load"] == "ramp":
        return "lengths or load of a trace"
    if point["source_group"] == "digitalocean":
        return "conversations with an unknown prefix-cache hit rate"
    if (model_of(point), point["precision"]) not in CHECKPOINTS:
        return "no configuration of the checkpoint"
    return ""


def checkpoint_of(point: Point) -> tuple[str, str]:
    checkpoint = model_of(point), point["precision"]
    is_nvidia = point["source_group"] == "tensorrt-llm-docs"
    return NVIDIA.get(checkpoint, CHECKPOINTS[checkpoint]) if is_nvidia else CHECKPOINTS[checkpoint]


def workload_of(point: Point) -> Workload:
    (in_share, in_cv), (out_share, out_cv) = SPREADS[point["length_spread"]]
    concurrency = number(point, "concurrency")
    queued = min(number(point, "requests") or MAX_QUEUED, MAX_QUEUED)
    if point["load"] == "poisson":
        requests, arrival = POISSON_REQUESTS, Arrival(poisson=float(point["rate"]))
    elif point["load"] == "concurrency":
        requests = max(MIN_REQUESTS, CLOSED_LOOP * concurrency)
        arrival = Arrival(concurrency=concurrency)
    else:
        requests, arrival = queued, Arrival(concurrency=queued)
    longest = context_of(point) - CONTEXT_MARGIN // 2
    return Workload(
        requests=requests,
        input=_lengths(float(point["isl"]), in_share, in_cv, longest // 2),
        output=_lengths(float(point["osl"]), out_share, out_cv, longest // 2),
        arrival=arrival,
    )


def _lengths(nominal: float, share: float, cv: float, longest: int) -> Lengths:
    if not cv:
        return Lengths(mean=round(nominal * share))
    most = round(nominal) if share < 1 else max(longest, round(nominal))
    return Lengths(mean=round(nominal * share), cv=cv, max=most)


def context_of(point: Point) -> int:
    length = round(float(point["isl"]) + float(point["osl"]))
    varies = SPREADS[point["length_spread"]][0] == VARIED
    return length * (VARIED_CONTEXT if varies else 1) + CONTEXT_MARGIN


def deployment_of(point: Point, folder: Path) -> Replayable:
    """``folder``: receives the configuration of a checkpoint that AISimulate does not have."""
    base, quantization = checkpoint_of(point)
    model, hints = base, Hints()
    if quantization:
        model = f"quantized/{base.rpartition('/')[2]}-{quantization}"
        hints = Hints(model_folder=_checkpoint(base, quantization, folder))
    dp, replicas = number(point, "decode_dp") or 1, number(point, "decode_replicas") or 1
    pp = number(point, "decode_pp") or 1
    graph = {
        "model": {"id": model, "context_length": context_of(point)},
        "hardware": {"gpu": point["gpu"]},
        "engine": {"kind": point["engine"], "config": CONFIGS[point["engine"]](point, dp, pp)},
        "worker": {"replicas": replicas, "gpus": number(point, "decode_tp") * dp * pp},
    }
    return replayable(graph_source(yaml.safe_dump(graph), "point.yaml"), hints)


def _checkpoint(base: str, quantization: str, folder: Path) -> Path:
    found = folder / f"{base.rpartition('/')[2]}-{quantization}"
    found.mkdir(exist_ok=True)
    config = json.loads(measured_models()[base].read_text())
    algorithm = {
        "quant_algo": quantization,
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
    }
    config["quantization_config"] = {"quant_method": "modelopt", **algorithm}
    (found / "config.json").write_text(json.dumps(config))
    (found / "hf_quant_config.json").write_text(json.dumps({"quantization": algorithm}))
    return found


def _trtllm(point: Point, dp: int, pp: int) -> dict[str, Any]:
    """The batch is the limit that is stated, else the largest batch with a CUDA graph, else the
    engine's default; an offline run of NVIDIA's has CUDA graphs up to 8,192, and is limited by
    memory only."""
    limits = point["engine_limits"]
    batch = _limit(limits, "max_batch_size") or _found(r"CUDA graphs up to batch (\d+)", limits)
    found = {
        "enable_chunked_prefill": True,
        "enable_attention_dp": dp > 1,
        "moe_expert_parallel_size": number(point, "decode_ep") or 1,
        "max_batch_size": min(batch, MAX_QUEUED) if batch else None,
        "max_num_tokens": _limit(limits, "max_num_tokens"),
        "pipeline_parallel_size": pp if pp > 1 else None,
        "kv_cache_config": _set(
            dtype=point["kv_dtype"] or _kv_of_checkpoint(point),
            free_gpu_memory_fraction=_fraction(limits, r"kv_fraction[ =](0\.\d+)"),
        ),
    }
    return _set(**found)


def _vllm(point: Point, dp: int, pp: int) -> dict[str, Any]:
    limits = point["engine_limits"]
    return _set(
        **{
            "max-num-seqs": _limit(limits, "max_num_seqs"),
            "max-num-batched-tokens": _limit(limits, "max_num_batched_tokens"),
            "gpu-memory-utilization": _fraction(limits, r"gpu_memory_utilization=(0\.\d+)"),
            "kv-cache-dtype": _kv(point),
            "enable-expert-parallel": True if number(point, "decode_ep") > 1 else None,
            "data-parallel-size": dp if dp > 1 else None,
            "pipeline-parallel-size": pp if pp > 1 else None,
        }
    )


def _sglang(point: Point, dp: int, pp: int) -> dict[str, Any]:
    limits, ep = point["engine_limits"], number(point, "decode_ep")
    return _set(
        **{
            "max-running-requests": _limit(limits, "max_running_requests"),
            "chunked-prefill-size": _limit(limits, "chunked_prefill_size"),
            "mem-fraction-static": _fraction(limits, r"mem_fraction_static=(0\.\d+)"),
            "enable-dp-attention": True if dp > 1 else None,
            "data-parallel-size": dp if dp > 1 else None,
            "expert-parallel-size": ep if ep > 1 else None,
            "pipeline-parallel-size": pp if pp > 1 else None,
        }
    )


CONFIGS = {"trtllm": _trtllm, "vllm": _vllm, "sglang": _sglang}


def _kv_of_checkpoint(point: Point) -> str | None:
    """What `auto` means: NVIDIA's FP8 and FP4 checkpoints quantize the KV cache too; DeepSeek's
    FP8 and gpt-oss do not."""
    is_own = point["precision"] == "fp8" and point["model"].startswith("deepseek-ai/")
    return "fp8" if point["precision"] in ("fp8", "fp4") and not is_own else None


def _kv(point: Point) -> str | None:
    return point["kv_dtype"] if point["kv_dtype"] in ("fp8", "auto") else None


def _set(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, {}, 0)}


def _limit(limits: str, name: str) -> int | None:
    return _found(rf"\b{name}=(\d+)", limits)


def _found(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def _fraction(limits: str, pattern: str) -> float | None:
    match = re.search(pattern, limits)
    return float(match[1]) if match else None


def number(point: Point, column: str) -> int:
    """0 if it is unknown."""
    return round(float(point[column] or 0))
