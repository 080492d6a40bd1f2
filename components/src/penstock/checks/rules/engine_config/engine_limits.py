"""Rules of limits and switches in TensorRT-LLM's file that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.engine_config.engine_file import LLM_ARGS, files
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import positive_int

GRAPH_SIZES = "cuda_graph_config.batch_sizes"
KNOWN_KV_DTYPES = ("auto", "fp8", "fp8_ds_mla", "nvfp4")


@rule(
    id="PS110",
    title="two sizes for CUDA graphs",
    level=Level.ERROR,
    cause="cuda_graph_config has batch_sizes and a max_batch_size that is not their largest.",
    effect="The worker ends at its start: a validator refuses the pair.",
    remedy="Keep one of them.",
    source="CudaGraphConfig in TensorRT-LLM llm_args.py; TensorRT-LLM#5014",
)
def graph_sizes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in files(deployment):
        sizes = worker.get(GRAPH_SIZES)
        largest = positive_int(worker.get("cuda_graph_config.max_batch_size"))
        counts = _counts(sizes)
        if counts and largest and max(counts) != largest:
            sizes = _within(counts, worker.count("max_sequences") or max(counts))
            config = {GRAPH_SIZES: sizes} if sizes != counts else {}
            yield RuleResult(
                location=worker.config("cuda_graph_config.max_batch_size"),
                message=f"max_batch_size {largest} and batch_sizes up to {max(counts)} disagree",
                fix=Fix(
                    text="keep batch_sizes alone, or the same largest",
                    config={"cuda_graph_config.max_batch_size": max(sizes), **config},
                ),
            )


def _within(sizes: list[int], batch: int) -> list[int]:
    """Those that can occur, the largest among them."""
    return [n for n in sizes if n < batch] + [batch] if max(sizes) > batch else sizes


def _counts(sizes: object) -> list[int]:
    return [n for s in sizes if (n := positive_int(s))] if isinstance(sizes, list) else []


@rule(
    id="PS111",
    title="CUDA graphs that are never used",
    level=Level.WARNING,
    cause="cuda_graph_config asks for batches larger than max_batch_size.",
    effect="The engine leaves them out; without enable_padding and without a size that is "
    "max_batch_size itself, full batches then run without a graph.",
    remedy="Capture up to max_batch_size, and that size too.",
    source="_filter_cuda_graph_batch_sizes in TensorRT-LLM's model_engine.py; TensorRT-LLM#4249",
)
def graph_waste(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in files(deployment):
        batch = worker.count("max_sequences")
        sizes = _counts(worker.get(GRAPH_SIZES))
        said = positive_int(worker.get("cuda_graph_config.max_batch_size"))
        largest = max(sizes, default=said)
        if said not in (None, largest):
            continue  # PS110 says it
        if batch and largest and largest > batch:
            least = {"cuda_graph_config.max_batch_size": batch} if said else {}
            yield RuleResult(
                location=worker.config("cuda_graph_config"),
                message=f"CUDA graphs for batches up to {largest}, and max_batch_size is {batch}",
                fix=Fix(
                    text="capture what can occur",
                    config={**least, **({GRAPH_SIZES: _within(sizes, batch)} if sizes else {})},
                ),
            )


@rule(
    id="PS112",
    title="more sequences than tokens in a step",
    level=Level.WARNING,
    cause="max_batch_size is above max_num_tokens, and each sequence takes a token a step.",
    effect="The batch never reaches its size; memory for it is set aside all the same.",
    remedy="Raise max_num_tokens or lower max_batch_size.",
    source="validator in TensorRT-LLM llm_args.py",
)
def batch_above_tokens(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        batch, tokens = worker.count("max_sequences"), worker.count("max_batch_tokens")
        said = worker.settings.word("max_sequences")
        is_known = worker.is_trtllm and worker.settings.is_whole
        if is_known and said and batch and tokens and batch > tokens:
            yield RuleResult(
                location=said.location,
                message=f"max_batch_size {batch} is above max_num_tokens {tokens}",
                fix=Fix(
                    text="a step has one token a sequence at least",
                    config={"max_num_tokens": batch},
                ),
            )


@rule(
    id="PS113",
    title="KV type that the kernels do not learn of",
    level=Level.WARNING,
    cause="Types other than auto, fp8, fp8_ds_mla and nvfp4 are not carried into the "
    "quantization config.",
    effect="Only a warning in the log; the cache may have another type than asked for.",
    remedy="Use auto (the weights' type) or fp8.",
    source="sync_quant_config_with_kv_cache_config_dtype in TensorRT-LLM llm_args.py",
)
def odd_kv_dtype(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in files(deployment):
        dtype = worker.get("kv_cache_config.dtype")
        if isinstance(dtype, str) and dtype not in KNOWN_KV_DTYPES:
            yield RuleResult(
                location=worker.config("kv_cache_config.dtype"),
                message=f"kv_cache_config.dtype {dtype} reaches the cache but not the kernels",
                fix=Fix(text="use auto or fp8", config={"kv_cache_config.dtype": "auto"}),
            )


@rule(
    id="PS119",
    title="a KV cache in the other half precision",
    level=Level.WARNING,
    cause="vLLM's kv-cache-dtype is float16 or bfloat16 and not the model's type.",
    effect="Garbage in the answers.",
    remedy="auto, or fp8.",
    source="vllm#54338",
)
def other_half(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """vLLM reads float16 and bfloat16 caches with the model's own kernels."""
    model = deployment.model
    for worker in deployment.workers:
        dtype = worker.get("kv-cache-dtype")
        weights = worker.get("dtype") or (model.dtype if model else None)
        if worker.engine is Engine.VLLM and dtype in ("float16", "bfloat16"):
            weights = {"half": "float16"}.get(str(weights), weights)
            if weights not in (None, "auto", dtype):
                yield RuleResult(
                    location=worker.config("kv-cache-dtype"),
                    message=f"kv-cache-dtype {dtype}, and the model computes in {weights}",
                    fix=Fix(text="use auto or fp8", config={"kv-cache-dtype": "auto"}),
                )


@rule(
    id="PS114",
    title="attention-DP settings without attention DP",
    level=Level.WARNING,
    cause="attention_dp_config is set and enable_attention_dp is not.",
    effect="Balancing does not happen; a published recipe has it so.",
    remedy="Set enable_attention_dp, or remove the section.",
    source="recipes/gpt-oss-120b/trtllm/disagg of ai-dynamo/dynamo@04521f47",
)
def idle_attention_dp(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in files(deployment):
        if isinstance(values.get("attention_dp_config"), Mapping) and not worker.has_attention_dp:
            yield RuleResult(
                location=worker.location("config", "attention_dp_config"),
                message="attention_dp_config has no effect: enable_attention_dp is not true",
                fix=Fix(
                    text="switch it on, or remove the section",
                    config={"enable_attention_dp": True},
                ),
            )


@rule(
    id="PS115",
    title="two owners of the prefill CUDA graphs",
    level=Level.ERROR,
    cause="torch_compile_config and prefill_cuda_graph_backend ask for different kinds.",
    effect="The worker ends at its start.",
    remedy="Keep prefill_cuda_graph_backend.",
    source="normalize_prefill_cuda_graph_config in TensorRT-LLM llm_args.py",
)
def two_prefill_graphs(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in files(deployment):
        piecewise = worker.get("torch_compile_config.enable_piecewise_cuda_graph") is True
        backend = values.get("prefill_cuda_graph_backend", "piecewise")
        breakable = backend == "breakable" and values.get("torch_compile_config") is not None
        if (piecewise and backend != "piecewise") or breakable:
            yield RuleResult(
                location=worker.location("config", "prefill_cuda_graph_backend"),
                message=f"prefill_cuda_graph_backend {backend} and torch_compile_config exclude "
                "each other",
                fix=Fix(text="keep prefill_cuda_graph_backend alone"),
            )


@rule(
    id="PS116",
    title="GPU memory service with an expert load balancer",
    level=Level.ERROR,
    cause="load_format GMS and moe_config.load_balancer are both set.",
    effect="The worker ends at its start.",
    remedy="Remove one.",
    source="TensorRT-LLM llm_args.py (validator)",
)
def gms_and_balancer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        is_gms = str(worker.get("load_format")).upper() == "GMS"
        if worker.is_trtllm and is_gms and worker.get("moe_config.load_balancer"):
            yield RuleResult(
                location=worker.config("moe_config.load_balancer"),
                message="load_format GMS and moe_config.load_balancer exclude each other",
                fix=Fix(text="remove one of them"),
            )


@rule(
    id="PS117",
    title="iteration statistics left on",
    level=Level.WARNING,
    cause="The operator sets DYN_FORWARDPASS_METRIC_PORT, and Dynamo then switches "
    "enable_iter_perf_stats on.",
    effect="A cost in every step of decoding, measurable by Dynamo's own comment.",
    remedy="enable_iter_perf_stats: false on decode and aggregated workers; prefill keeps "
    "them, "
    "its drain reads them.",
    source="dynamo/trtllm/args.py 43-75 of ai-dynamo 1.6.1",
)
def iteration_statistics(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """The operator sets DYN_FORWARDPASS_METRIC_PORT on every worker, which switches them on; a
    prefill worker's drain reads them, so only the others are better without."""
    reads = bool(deployment.with_role(Role.PLANNER))
    for worker in deployment.pool(Role.DECODE, Role.WORKER):
        asked = worker.env("DYN_TRTLLM_PUBLISH_METRICS")
        if reads or asked or worker.flag("--publish-metrics", "--publish-events-and-metrics"):
            continue  # somebody lives on them
        if (
            worker.is_trtllm
            and worker.get("enable_iter_perf_stats") is None
            and worker.settings.is_whole
        ):
            yield RuleResult(
                location=worker.location("config", "enable_iter_perf_stats"),
                message="iteration statistics stay on: the operator's metrics port switches them "
                "on unless the file says false",
                fix=Fix(text="switch them off", config={"enable_iter_perf_stats": False}),
            )
        elif worker.is_trtllm and worker.get("enable_iter_perf_stats") is True:
            yield RuleResult(
                location=worker.config("enable_iter_perf_stats"),
                message="iteration statistics are on",
                fix=Fix(text="switch them off", config={"enable_iter_perf_stats": False}),
            )


@rule(
    id="PS118",
    title="a number in quotes",
    level=Level.NOTE,
    cause="A limit is written as a string.",
    effect="TensorRT-LLM converts it; other readers of the file may not.",
    remedy="Write the number without quotes.",
    source=LLM_ARGS,
)
def quoted_number(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """The engine converts it, other tools that read the file may not."""
    for worker, values in files(deployment):
        for key, value in values.items():
            if isinstance(value, str) and re.fullmatch(r"[0-9]+", value) and key.startswith("max_"):
                yield RuleResult(
                    location=worker.location("config", str(key)),
                    message=f'{key} is the string "{value}"',
                    fix=Fix(text="write it without quotes", config={str(key): int(value)}),
                )
