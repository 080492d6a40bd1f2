"""The memory budget of a worker, from its settings, the GPU and the model.

SGLang's defaults are from sglang/srt/arg_groups/memory_hook.py and
model_executor/pool_configurator.py 0.5.21.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine, Role
from penstock.memory import MemoryBudget, MemoryInputs, memory_budget
from penstock.memory.budget import ACTIVATION_BYTES, GIB, Release
from penstock.models import ModelShape
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import software
from penstock.serving.worker import Worker
from penstock.text.values import positive_int

MIB = 1024  # in one GiB
VLLM_RAISED = (0, 20)  # the first vLLM whose gpu_memory_utilization is not 0.9
# Model types whose sliding layers have a separate pool (`is_hybrid_swa_model`).
WITH_WINDOW_POOL = ("gpt_oss",)
WINDOW_SHARE = 0.8  # swa-full-tokens-ratio
SMI_GIB = 0.6  # what nvidia-smi, which SGLang asks, shows in addition to CUDA
LARGE_GIB = 160  # with this much memory, SGLang uses larger steps and graphs
# Keys that limit the KV cache: in bytes of one GPU, and in tokens (vLLM: in blocks).
POOL_BYTES = {
    Engine.TRTLLM: "kv_cache_config.max_gpu_total_bytes",
    Engine.VLLM: "kv-cache-memory-bytes",
}
TOKEN_LIMITS = {
    Engine.TRTLLM: "kv_cache_config.max_tokens",
    Engine.VLLM: "num-gpu-blocks-override",
    Engine.SGLANG: "max-total-tokens",
}
# Methods that quantize an unquantized checkpoint at load, and the resulting format
# (vllm/config/quantization.py 0.31.0; sglang/srt/layers/quantization 0.5.21).
AT_LOAD: Mapping[Engine, Mapping[str, str | None]] = {
    Engine.VLLM: {
        "fp8": "fp8",
        "fp8_per_tensor": "fp8",
        "fp8_per_block": "fp8",
        "fp8_per_channel": "fp8",
        "mxfp8": "mxfp8",
    },
    Engine.SGLANG: {"fp8": "fp8", "unquant": None},
}


def sglang_fraction(worker: Worker, gpu: Gpu, model: ModelShape) -> float:
    """SGLang's default of mem-fraction-static: the GPU without its reserve."""
    is_large = gpu.memory_gib >= LARGE_GIB
    batch = _decode_batch(worker) or (512 if is_large or worker.tp >= 4 else 256)
    tokens = chunk = _step(worker) or default_step(gpu)
    if worker.role is Role.DECODE:
        drafted = positive_int(worker.get("speculative-num-draft-tokens")) or 1
        tokens = (worker.count("max_sequences") or batch) * drafted
    reserve = 512 + 1.5 * max(tokens, 2048) + worker.tp * worker.pp / 8 * MIB
    has_deepep = worker.get("moe-a2a-backend") == "deepep"
    if worker.role is not Role.PREFILL:
        reserve += batch * 2 if _captures(worker, "decode") else 0
        if worker.has_attention_dp:
            reserve += batch * worker.attention_ranks * (4.5 if batch > 300 else 3)
    if worker.role is not Role.DECODE and _captures(worker, "prefill"):
        sizes = _prefill_sizes(positive_int(worker.get("cuda-graph-max-bs-prefill")) or chunk)
        reserve += 1.5 * MIB if model.is_mla else 8 * sizes
        reserve += MIB if has_deepep else 0
    reserve = max(reserve, 10 * MIB)
    if worker.role is not Role.PREFILL and has_deepep and _captures(worker, "decode"):
        reserve += 2 * MIB
    total = (gpu.memory_gib + SMI_GIB) * MIB
    return round((total - reserve) / total, 3)


def default_step(gpu: Gpu) -> int:
    """Default tokens of a step."""
    return 16384 if gpu.memory_gib >= LARGE_GIB else 8192


def _step(worker: Worker) -> int | None:
    """Tokens of a prefill step; without chunked prefill, tokens of the longest batch."""
    tokens = worker.value("max_batch_tokens")
    is_off = isinstance(tokens, int) and tokens <= 0
    if is_off:
        return positive_int(worker.get("max-prefill-tokens")) or 16384
    return positive_int(tokens)


def _decode_batch(worker: Worker) -> int | None:
    """The configured largest batch of decode graphs."""
    listed = worker.get("cuda-graph-bs-decode")
    sizes = [
        n
        for size in (listed if isinstance(listed, list) else [listed])
        if (n := positive_int(size))
    ]
    return max(sizes, default=None) or positive_int(worker.get("cuda-graph-max-bs-decode"))


def _captures(worker: Worker, phase: str) -> bool:
    """Whether CUDA graphs of a phase are captured (arg_groups/cuda_graph_hook.py 0.5.21)."""
    backend = worker.get(f"cuda-graph-backend-{phase}")
    if backend is not None:
        return str(backend) != "disabled"
    off = (f"disable-{phase}-cuda-graph", "disable-cuda-graph")
    if any(worker.get(flag) is True for flag in off):
        return False
    is_odd = worker.pp > 1 or worker.dcp > 1 or worker.get("enable-two-batch-overlap") is True
    return phase == "decode" or not is_odd


def _prefill_sizes(most: int) -> int:
    """Number of prefill graph sizes (`generate_prefill_cuda_graph_batch_sizes`)."""
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256))
    sizes = [size for step in (*steps, (4608, most + 1, 512)) for size in range(*step)]
    return sum(size <= most for size in sizes)


def has_window_pool(worker: Worker, model: ModelShape) -> bool:
    """Whether sliding layers keep only their window, in a separate pool."""
    is_kind = model.kind in WITH_WINDOW_POOL and worker.engine is Engine.SGLANG
    return is_kind and worker.get("disable-hybrid-swa-memory") is not True


def window_share(worker: Worker, model: ModelShape) -> float:
    """Tokens in the sliding layers' pool for each token in the full layers' pool."""
    if not has_window_pool(worker, model):
        return 1.0
    ratio = worker.get("swa-full-tokens-ratio")
    is_share = isinstance(ratio, (int, float)) and not isinstance(ratio, bool) and 0 < ratio <= 1
    return float(ratio) if is_share else WINDOW_SHARE


def missing_facts(
    deployment: ServingDeployment, worker: Worker, *, fraction: float | None = None
) -> str:
    """The reasons why the worker's memory cannot be computed; empty if it can. ``fraction``: a
    memory fraction instead of the configured one."""
    if worker.engine not in ACTIVATION_BYTES:
        return f"penstock has no memory model for {worker.engine}"
    missing = []
    if deployment.gpu is None:
        missing.append("the GPU is not stated (hardware.gpu, a node selector, or --gpu)")
    if deployment.model is None:
        missing.append(f"the model's shape is not known ({deployment.model_unknown})")
    elif (method := _at_load(deployment.model, worker)) is not None and method not in _known(
        worker
    ):
        missing.append(f"the weight format that {worker.engine} uses for {method} is not known")
    elif deployment.model.value_bytes(kv_dtype := _kv_dtype(worker, deployment.model)) is None:
        missing.append(f"the size of the KV cache type {kv_dtype} is not known")
    if not worker.is_laid_out:
        missing.append(f"the parallelism of {worker.name} is invalid, or computed in its script")
    configured = worker.value("memory_fraction") if fraction is None else fraction
    if isinstance(configured, (int, float)) and not 0 < configured <= 1:
        missing.append(f"the memory fraction of {worker.name} is invalid")
    if not worker.settings.is_complete:
        missing.append(f"the engine's configuration file of {worker.name} cannot be read")
    return "; ".join(missing)


def fix_of_missing(deployment: ServingDeployment) -> str:
    """What to do about `missing_facts`."""
    if any(runs_on_gpu(w) and w.engine not in ACTIVATION_BYTES for w in deployment.workers):
        return "Start the engine on the target GPU, and read the sizes of its buffers in its log."
    if deployment.gpu is None:
        return "Set `hardware.gpu`, or add --gpu."
    if deployment.model is None:
        return "Add --model DIR, a folder on this machine with the model's config.json."
    return "State it in the graph or manifest."


def no_budget_reason(deployment: ServingDeployment) -> str:
    """Why `memory_budgets` is empty."""
    reasons = (
        missing_facts(deployment, worker) for worker in deployment.workers if runs_on_gpu(worker)
    )
    return next(filter(None, reasons), "no worker uses a GPU")


def runs_on_gpu(worker: Worker) -> bool:
    return worker.engine is not Engine.MOCKER and bool(worker.component.gpus)


def _known(worker: Worker) -> Mapping[str, str | None]:
    return AT_LOAD.get(worker.engine, {})


def _at_load(model: ModelShape, worker: Worker) -> str | None:
    """The method that quantizes an unquantized checkpoint at load."""
    if model.quantization != "none":
        return None
    method = worker.get("quant_config.quant_algo" if worker.is_trtllm else "quantization")
    return str(method) if method and method != "NO_QUANT" else None


def _loaded(model: ModelShape, worker: Worker) -> ModelShape:
    """The model in the format that the engine loads it to."""
    loaded = _known(worker).get(_at_load(model, worker) or "")
    return model.quantized_at_load(loaded) if loaded else model


def _offload(worker: Worker) -> float:
    """GiB of one GPU's weights that stay in host memory."""
    gib = None if worker.is_trtllm else worker.get("cpu-offload-gb")
    if isinstance(gib, bool) or not isinstance(gib, (int, float)):
        return 0.0
    return max(0.0, float(gib))


def memory_inputs(
    deployment: ServingDeployment, worker: Worker, *, fraction: float | None = None
) -> MemoryInputs | None:
    """What decides the worker's memory; None if the GPU, the model or a setting is unknown.
    ``fraction``: a memory fraction instead of the configured one."""
    gpu, model = deployment.gpu, deployment.model
    if gpu is None or model is None or not runs_on_gpu(worker):
        return None
    if missing_facts(deployment, worker, fraction=fraction):
        return None
    is_trtllm = worker.is_trtllm
    release = engine_release(worker)
    speculation = worker.value("speculation")
    return MemoryInputs(
        engine=str(worker.engine),
        gpu=gpu,
        model=_loaded(model, worker),
        tp=worker.tp,
        pp=worker.pp,
        ep=worker.ep,
        fraction=fraction or memory_fraction(worker, gpu, model, release),
        kv_dtype=_kv_dtype(worker, model),
        block_size=worker.count("block_size") or 16,
        context=deployment.longest_prompt(worker) or model.positions,
        max_sequences=worker.count("max_sequences")
        or (1024 if worker.engine is Engine.VLLM else 256),
        max_batch_tokens=worker.count("max_batch_tokens") or default_step(gpu),
        buffer_tokens=_buffer(worker) if is_trtllm else 0,
        graphs=_has_graphs(worker),
        has_windows=_has_windows(worker),
        draft=bool(speculation) and not _needs_no_draft_model(speculation),
        set_pool_gib=_set_pool(worker),
        max_kv_tokens=_token_limit(worker),
        attention_ranks=worker.attention_ranks,
        offload_gib=_offload(worker),
        data_parallel=worker.dp,
        decode_contexts=worker.dcp,
        window_share=window_share(worker, model),
        release=release,
    )


def engine_release(worker: Worker) -> Release | None:
    """The engine's release in the image, such as (0, 31); None if it is not stated."""
    version = next(iter(software(worker.pod).engines.get(worker.engine, ())), None)
    return (version.major, version.minor) if version else None


def memory_fraction(worker: Worker, gpu: Gpu, model: ModelShape, release: Release | None) -> float:
    """The configured memory fraction, else the engine's default."""
    setting = worker.settings.common("memory_fraction")
    value = worker.value("memory_fraction")
    if setting is None or setting.value is None:
        if worker.engine is Engine.SGLANG:
            return sglang_fraction(worker, gpu, model)
        if worker.engine is Engine.VLLM and release is not None and release < VLLM_RAISED:
            return 0.9
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else 0.9


def _kv_dtype(worker: Worker, model: ModelShape) -> str:
    """The type of the KV cache; `auto` is the type from the checkpoint's quantization config."""
    configured = str(worker.value("kv_dtype") or "auto")
    reads_checkpoint = model.method == "modelopt" or worker.engine is Engine.VLLM
    if configured == "auto" and model.kv_dtype and reads_checkpoint:
        return model.kv_dtype
    return configured


def _buffer(worker: Worker) -> int:
    """Tokens of the C++ transceiver's buffers; the Python transceiver needs no buffers."""
    if worker.role is Role.WORKER or worker.get("cache_transceiver_config.backend") is None:
        return 0
    if worker.get("cache_transceiver_config.transceiver_runtime") == "PYTHON":
        return 0
    return positive_int(worker.get("cache_transceiver_config.max_tokens_in_buffer")) or 0


def _has_graphs(worker: Worker) -> bool:
    if worker.is_trtllm:
        setting = worker.settings.get("cuda_graph_config")
        return setting is None or setting.value is not None
    return worker.get("enforce-eager") is not True and worker.get("disable-cuda-graph") is not True


def _has_windows(worker: Worker) -> bool:
    """Whether the engine frees the KV that is outside of a sliding layer's window."""
    if worker.is_trtllm:
        return isinstance(worker.get("kv_cache_config.max_attention_window"), list)
    return (
        worker.engine is Engine.VLLM and worker.get("disable-hybrid-kv-cache-manager") is not True
    )


def _needs_no_draft_model(value: object) -> bool:
    text = str(value).lower()
    return any(word in text for word in ("ngram", "mtp", "nextn", "suffix", "'sa'"))


def _limit(worker: Worker, keys: Mapping[Engine, str]) -> int | None:
    """The configured limit."""
    key = keys.get(worker.engine)
    return positive_int(worker.get(key)) if key else None


def _set_pool(worker: Worker) -> float | None:
    limit = _limit(worker, POOL_BYTES)
    return limit / GIB if limit else None


def _token_limit(worker: Worker) -> int | None:
    limit = _limit(worker, TOKEN_LIMITS)
    if limit and worker.engine is Engine.VLLM:  # its limit is in blocks
        return limit * (worker.count("block_size") or 16)
    return limit


def memory_budgets(deployment: ServingDeployment) -> Iterator[tuple[Worker, MemoryBudget]]:
    """The budget of one worker of each component."""
    seen = set()
    for worker in deployment.workers:
        if worker.name not in seen and (inputs := memory_inputs(deployment, worker)) is not None:
            seen.add(worker.name)
            yield worker, memory_budget(inputs)
