"""Rules about settings in TensorRT-LLM's engine file that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.engine_config.engine_file import engine_files
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment

GRAPH_BATCH_SIZES = "cuda_graph_config.batch_sizes"
KNOWN_KV_DTYPES = ("auto", "fp8", "fp8_ds_mla", "nvfp4")


def contradicting_graph_sizes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in engine_files(deployment):
        sizes = worker.get(GRAPH_BATCH_SIZES)
        largest = positive_int(worker.get("cuda_graph_config.max_batch_size"))
        counts = _positive_sizes(sizes)
        if counts and largest and max(counts) != largest:
            sizes = _captured_sizes(counts, worker.count("max_sequences") or max(counts))
            config = {GRAPH_BATCH_SIZES: sizes} if sizes != counts else {}
            yield RuleResult(
                location=worker.config_location("cuda_graph_config.max_batch_size"),
                message=f"cuda_graph_config.max_batch_size is {largest}, but the largest of "
                f"batch_sizes is {max(counts)}",
                fix=Fix(
                    text=f"Set cuda_graph_config.max_batch_size to {max(sizes)}, the largest "
                    "of batch_sizes.",
                    config={"cuda_graph_config.max_batch_size": max(sizes), **config},
                ),
            )


def _captured_sizes(sizes: list[int], batch: int) -> list[int]:
    """The sizes up to ``batch``, with ``batch`` itself in place of larger ones."""
    return [n for n in sizes if n < batch] + [batch] if max(sizes) > batch else sizes


def _positive_sizes(sizes: object) -> list[int]:
    return [n for s in sizes if (n := positive_int(s))] if isinstance(sizes, list) else []


def unused_graph_sizes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in engine_files(deployment):
        batch = worker.count("max_sequences")
        sizes = _positive_sizes(worker.get(GRAPH_BATCH_SIZES))
        configured = positive_int(worker.get("cuda_graph_config.max_batch_size"))
        largest = max(sizes, default=configured)
        if configured not in (None, largest):
            continue  # PS110 reports it
        if batch and largest and largest > batch:
            maximum = {"cuda_graph_config.max_batch_size": batch} if configured else {}
            is_padded = worker.get("cuda_graph_config.enable_padding") is True
            yield RuleResult(
                location=worker.config_location("cuda_graph_config"),
                message=f"CUDA graphs are captured for batches up to {largest}, but "
                f"max_batch_size is {batch}",
                fix=Fix(
                    text=f"Capture CUDA graphs for batch sizes up to {batch}.",
                    config={
                        **maximum,
                        **({GRAPH_BATCH_SIZES: _captured_sizes(sizes, batch)} if sizes else {}),
                    },
                ),
                # Batches of every size are padded to a captured size or have one.
                level=Level.NOTE if batch in sizes or (is_padded and not sizes) else None,
            )


def batch_above_tokens(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        batch, tokens = worker.count("max_sequences"), worker.count("max_batch_tokens")
        setting = worker.settings.common("max_sequences")
        is_known = worker.is_trtllm and worker.settings.is_complete
        if is_known and setting and batch and tokens and batch > tokens:
            yield RuleResult(
                location=setting.location,
                message=f"max_batch_size {batch} is above max_num_tokens {tokens}",
                fix=Fix(
                    text=f"Raise max_num_tokens to at least {batch}, or lower max_batch_size.",
                    config={"max_num_tokens": batch},
                ),
            )


def unsupported_kv_dtype(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in engine_files(deployment):
        dtype = worker.get("kv_cache_config.dtype")
        if isinstance(dtype, str) and dtype not in KNOWN_KV_DTYPES:
            yield RuleResult(
                location=worker.config_location("kv_cache_config.dtype"),
                message=f"kv_cache_config.dtype {dtype} sets the type of the cache but not of "
                "the kernels",
                fix=Fix(
                    text="Set kv_cache_config.dtype to auto or fp8.",
                    config={"kv_cache_config.dtype": "auto"},
                ),
            )


def different_half_precision(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """vLLM reads float16 and bfloat16 caches with the kernels of the model's type."""
    model = deployment.model
    for worker in deployment.workers:
        dtype = worker.get("kv-cache-dtype")
        weights = worker.get("dtype") or (model.dtype if model else None)
        if worker.engine is Engine.VLLM and dtype in ("float16", "bfloat16"):
            weights = {"half": "float16"}.get(str(weights), weights)
            if weights not in (None, "auto", dtype):
                yield RuleResult(
                    location=worker.config_location("kv-cache-dtype"),
                    message=f"kv-cache-dtype is {dtype}, but the model computes in {weights}",
                    fix=Fix(
                        text="Set kv-cache-dtype to auto or fp8.", config={"kv-cache-dtype": "auto"}
                    ),
                )


def unused_attention_dp_config(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in engine_files(deployment):
        if isinstance(values.get("attention_dp_config"), Mapping) and not worker.has_attention_dp:
            yield RuleResult(
                location=worker.location("config", "attention_dp_config"),
                message="attention_dp_config has no effect because enable_attention_dp is not true",
                fix=Fix(
                    text="Set enable_attention_dp to true, or delete attention_dp_config.",
                    config={"enable_attention_dp": True},
                ),
                level=Level.NOTE if values.get("enable_attention_dp") is False else None,
            )


def two_prefill_graphs(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in engine_files(deployment):
        piecewise = worker.get("torch_compile_config.enable_piecewise_cuda_graph") is True
        backend = values.get("prefill_cuda_graph_backend", "piecewise")
        breakable = backend == "breakable" and values.get("torch_compile_config") is not None
        if (piecewise and backend != "piecewise") or breakable:
            yield RuleResult(
                location=worker.location("config", "prefill_cuda_graph_backend"),
                message=f"prefill_cuda_graph_backend {backend} and torch_compile_config are "
                "mutually exclusive",
                fix=Fix(text="Remove torch_compile_config and keep prefill_cuda_graph_backend."),
            )


def gms_and_balancer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        is_gms = str(worker.get("load_format")).upper() == "GMS"
        if worker.is_trtllm and is_gms and worker.get("moe_config.load_balancer"):
            yield RuleResult(
                location=worker.config_location("moe_config.load_balancer"),
                message="load_format GMS and moe_config.load_balancer are mutually exclusive",
                fix=Fix(text="Remove load_format or moe_config.load_balancer."),
            )


def iteration_statistics(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """The operator sets DYN_FORWARDPASS_METRIC_PORT on every worker, which enables the statistics.
    Prefill workers are skipped because draining them reads the statistics."""
    has_planner = bool(deployment.with_role(Role.PLANNER))
    for worker in deployment.pool(Role.DECODE, Role.WORKER):
        publishes = worker.env("DYN_TRTLLM_PUBLISH_METRICS") or worker.flag(
            "--publish-metrics", "--publish-events-and-metrics"
        )
        if has_planner or publishes:
            continue  # the planner or the metrics need the statistics
        if (
            worker.is_trtllm
            and worker.get("enable_iter_perf_stats") is None
            and worker.settings.is_complete
        ):
            yield RuleResult(
                location=worker.location("config", "enable_iter_perf_stats"),
                message="the operator sets DYN_FORWARDPASS_METRIC_PORT, which enables iteration "
                "statistics unless enable_iter_perf_stats is false",
                fix=Fix(
                    text="Set enable_iter_perf_stats to false.",
                    config={"enable_iter_perf_stats": False},
                ),
            )
        elif worker.is_trtllm and worker.get("enable_iter_perf_stats") is True:
            yield RuleResult(
                location=worker.config_location("enable_iter_perf_stats"),
                message="iteration statistics are enabled (enable_iter_perf_stats is true)",
                fix=Fix(
                    text="Set enable_iter_perf_stats to false.",
                    config={"enable_iter_perf_stats": False},
                ),
            )


def quoted_number(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in engine_files(deployment):
        for key, value in values.items():
            if isinstance(value, str) and re.fullmatch(r"[0-9]+", value) and key.startswith("max_"):
                yield RuleResult(
                    location=worker.location("config", str(key)),
                    message=f'{key} is the string "{value}", not a number',
                    fix=Fix(text=f"Write {key} without quotes.", config={str(key): int(value)}),
                )
