"""Rules about the parallel layout, experts and adapters that SGLang refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.exclusion import Exclusion, results
from penstock.checks.finding import RuleResult
from penstock.checks.rules.parallelism.kernels import ATTENTION_BACKENDS
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

RUNNER = "moe-runner-backend"
# What flashinfer_cutlass accepts, besides weights without quantization.
CUTLASS_WEIGHTS = ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "modelopt")
# Runners that support expert parallelism over one or all GPUs, and the versions that refuse others.
WHOLE_EXPERTS = {"flashinfer_cutlass": "", "flashinfer_cutedsl": ">=0.5.16"}
SPARSE = ("deepseek_v32", "glm_moe_dsa")  # DeepSeek sparse attention
TREE_BACKENDS = ("flashinfer", "fa3", "triton")
ADAPTERS = "lora-paths"
MXFP4_BLOCK = 128
KV = COMMON_SETTINGS["kv_dtype"][Engine.SGLANG]


def refused_layout(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.SGLANG and worker.is_laid_out:
            facts = deployment.facts_of(worker)
            is_hopper = deployment.gpu is not None and deployment.gpu.is_hopper
            yield from results(worker, (*_ranks(worker), *_runner(worker)))
            if is_hopper:
                yield from results(worker, _hopper(worker))
            if facts is not None:
                yield from results(worker, _model(worker, facts, is_hopper=is_hopper))


def _ranks(worker: Worker) -> Iterator[Exclusion]:
    dense = positive_int(worker.get("moe-dense-tp-size"))
    if dense and dense != 1:
        yield Exclusion(
            key="moe-dense-tp-size",
            problem=f"moe-dense-tp-size is {dense}, but must be 1"
            + ("" if dense == worker.tp else " or the tensor parallelism"),
            fix="Set moe-dense-tp-size to 1.",
            versions="<0.5.14" if dense == worker.tp else "",
        )
    has_copies = (worker.count("data_parallel") or 1) > 1 and not worker.has_attention_dp
    if worker.get("enable-dp-lm-head") is True and has_copies:
        yield Exclusion(
            key="enable-dp-lm-head",
            problem="enable-dp-lm-head requires enable-dp-attention",
            fix="Set enable-dp-attention, or remove enable-dp-lm-head.",
        )
    if worker.get("enable-eplb") is True and worker.ep == 1:
        yield Exclusion(
            key="enable-eplb",
            problem="enable-eplb requires ep-size above 1",
            fix=f"Set ep-size to {worker.tp}, or remove enable-eplb.",
        )


def _runner(worker: Worker) -> Iterator[Exclusion]:
    runner, weights = worker.get(RUNNER), worker.get("quantization")
    if runner == "flashinfer_cutlass" and weights is not None and weights not in CUTLASS_WEIGHTS:
        yield Exclusion(
            key=RUNNER,
            problem=f"{RUNNER} flashinfer_cutlass does not support quantization {weights}",
            fix=f"Remove {RUNNER}.",
        )
    if str(runner) in WHOLE_EXPERTS and worker.ep not in (1, worker.tp):
        yield Exclusion(
            key="ep-size",
            problem=f"ep-size is {worker.ep}, but {RUNNER} {runner} supports only 1 and "
            f"{worker.tp}",
            fix=f"Set ep-size to {worker.tp}.",
            versions=WHOLE_EXPERTS[str(runner)],
        )
    if runner == "cutlass" and weights == "fp8" and worker.ep > 1:
        yield Exclusion(
            key=RUNNER,
            problem=f"{RUNNER} cutlass with FP8 weights supports only ep-size 1, not {worker.ep}",
            fix="Set ep-size to 1.",
        )
    if worker.get("speculative-moe-runner-backend") == "flashinfer_trtllm":
        yield Exclusion(
            key="speculative-moe-runner-backend",
            problem="speculative-moe-runner-backend does not support flashinfer_trtllm",
            fix="Set speculative-moe-runner-backend to triton.",
            versions=">=0.5.8,<0.5.14",
        )


def _hopper(worker: Worker) -> Iterator[Exclusion]:
    for key in ATTENTION_BACKENDS:
        if worker.get(key) == "trtllm_mha":
            yield Exclusion(
                key=key,
                problem=f"{key} trtllm_mha has no kernels for Hopper in this version",
                fix=f"Remove {key}.",
                versions="<0.5.10",
            )


def _model(worker: Worker, facts: ModelFacts, *, is_hopper: bool) -> Iterator[Exclusion]:
    dtype = str(worker.get(KV) or "auto")
    if facts.kind in SPARSE and dtype not in ("auto", "bf16", "bfloat16", "fp8_e4m3"):
        yield Exclusion(
            key=KV,
            problem=f"{KV} is {dtype}, but sparse attention supports only bfloat16 and fp8_e4m3",
            fix=f"Remove {KV}.",
        )
    if facts.kind.startswith("deepseek_v4") and dtype not in ("auto", "bfloat16", "fp8_e4m3"):
        yield Exclusion(
            key=KV,
            problem=f"{KV} is {dtype}, but {worker.value('model')} supports only bfloat16 and "
            "fp8_e4m3",
            fix=f"Remove {KV}.",
        )
    share = _expert_share(worker, facts)
    if worker.get(RUNNER) == "flashinfer_mxfp4" and is_hopper and share % MXFP4_BLOCK:
        yield Exclusion(
            key=RUNNER,
            problem=f"each GPU gets {share:g} of the {facts.expert_width} columns of an expert, "
            f"but {RUNNER} flashinfer_mxfp4 needs a multiple of {MXFP4_BLOCK} on Hopper",
            fix=f"Set {RUNNER} to marlin, or use a larger ep-size.",
        )


def _expert_share(worker: Worker, facts: ModelFacts) -> float:
    """Columns of an expert on one GPU of a model whose experts are not padded; 0 if unknown."""
    if not facts.kind.startswith("deepseek_v4") or not facts.expert_width:
        return 0
    return facts.expert_width * worker.ep / worker.tp


def excluded_by_drafts(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        method = str(worker.value("speculation") or "").upper()
        if worker.engine is Engine.SGLANG and method:
            yield from results(worker, _drafts(worker, method))


def _drafts(worker: Worker, method: str) -> Iterator[Exclusion]:
    adapts = worker.get("enable-lora") is True or worker.get(ADAPTERS)
    if adapts and method != "NGRAM" and worker.get("enable-lora") is not False:
        yield Exclusion(
            key="enable-lora" if worker.get("enable-lora") else ADAPTERS,
            problem=f"LoRA does not work with speculative-algorithm {method}",
            fix="Remove speculative-algorithm, or use NGRAM.",
            versions=">=0.5.6,<0.5.21",
        )
    width, page = (
        positive_int(worker.get("speculative-eagle-topk")) or 1,
        worker.count("block_size"),
    )
    backend = worker.get("attention-backend")
    is_tree = width > 1 and (page or 1) > 1 and backend != "trtllm_mha"  # PS152
    if is_tree and backend is not None and backend not in TREE_BACKENDS:
        yield Exclusion(
            key="speculative-eagle-topk",
            problem=f"speculative-eagle-topk {width} with page-size {page} does not work with "
            f"attention-backend {backend}",
            fix="Set speculative-eagle-topk to 1, or use flashinfer.",
            versions=">=0.5.3",
        )


def lora_settings(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.SGLANG:
            yield from results(worker, _sglang_lora(worker))
        elif worker.engine is Engine.VLLM and worker.get("enable-lora") is True:
            yield from results(worker, _vllm_lora(worker))


def _sglang_lora(worker: Worker) -> Iterator[Exclusion]:
    per_batch = positive_int(worker.get("max-loras-per-batch")) or 8
    loaded = positive_int(worker.get("max-loaded-loras"))
    needed = ("max-lora-rank", "lora-target-modules")
    missing = [flag for flag in needed if worker.get(flag) is None]
    if worker.get("enable-lora") is True and worker.get(ADAPTERS) is None and missing:
        yield Exclusion(
            key="enable-lora",
            problem=f"enable-lora without {ADAPTERS} requires {' and '.join(missing)}",
            fix=f"Set {' and '.join(missing)}.",
        )
    if loaded is not None and loaded < per_batch:
        yield Exclusion(
            key="max-loaded-loras",
            problem=f"max-loaded-loras {loaded} is below max-loras-per-batch {per_batch}",
            fix=f"Set max-loaded-loras to at least {per_batch}.",
        )


def _vllm_lora(worker: Worker) -> Iterator[Exclusion]:
    most, on_cpu = positive_int(worker.get("max-loras")) or 1, worker.get("max-cpu-loras")
    if (count := positive_int(on_cpu)) is not None and count < most:
        yield Exclusion(
            key="max-cpu-loras",
            problem=f"max-cpu-loras {count} is below max-loras {most}",
            fix=f"Set max-cpu-loras to at least {most}.",
            versions=">=0.12",
        )
