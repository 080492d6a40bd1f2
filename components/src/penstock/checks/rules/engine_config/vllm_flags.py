"""Rules about vLLM's flags that contradict each other or the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, RuleResult
from penstock.manifests.deployment import Engine
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

BFLOAT16_ONLY = ("mxfp4", "gpt_oss_mxfp4", "mxfp8", "modelopt_mxfp8", "fp_quant")
# `_FLOAT16_NOT_SUPPORTED_MODELS` of vllm/config/model.py.
WITHOUT_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4")
# The first name that matches a method's beginning is its family.
FAMILIES = ("compressed-tensors", "modelopt", "awq", "gptq", "mxfp4", "fp8", "bitsandbytes")
ALL_TO_ALL = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")


def _vllm_workers(deployment: ServingDeployment) -> Iterator[Worker]:
    return (worker for worker in deployment.workers if worker.engine is Engine.VLLM)


def float16_unsupported(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _vllm_workers(deployment):
        facts = deployment.facts_of(worker)
        if str(worker.value("dtype")) not in ("float16", "half") or facts is None:
            continue
        method = worker.get("quantization") or facts.quantization
        if method in BFLOAT16_ONLY or facts.kind in WITHOUT_FLOAT16:
            reason = f"{method} weights" if method in BFLOAT16_ONLY else facts.kind
            yield RuleResult(
                location=worker.settings.location("dtype"),
                message=f"dtype is {worker.value('dtype')}, but {reason} require bfloat16",
                fix=Fix(text="Set dtype to bfloat16.", config={"dtype": "bfloat16"}),
            )


def other_quantization(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _vllm_workers(deployment):
        facts, flag = deployment.facts_of(worker), worker.get("quantization")
        if facts is None or not isinstance(flag, str) or facts.quantization in (None, "none"):
            continue
        given, own = _family(flag), _family(str(facts.quantization))
        if given and own and given != own:
            yield RuleResult(
                location=worker.config_location("quantization"),
                message=f"quantization is {flag}, but the checkpoint is quantized with "
                f"{facts.quantization}",
                fix=Fix(text="Remove quantization.", config={"quantization": None}),
            )


def _family(method: str) -> str:
    text = method.lower()
    return next((family for family in FAMILIES if family in text), "")


def contradicting_data_parallelism(deployment: ServingDeployment) -> Iterable[RuleResult]:
    external, hybrid = "data-parallel-external-lb", "data-parallel-hybrid-lb"
    for worker in _vllm_workers(deployment):
        if not worker.is_laid_out:
            continue
        is_external = worker.get(external) is True
        local = positive_int(worker.get("data-parallel-size-local"))
        if is_external and worker.get(hybrid) is True:
            key, problem = external, f"{external} and {hybrid} exclude each other"
        elif is_external and worker.dp == 1:
            key, problem = external, f"{external} requires data-parallel-size above 1"
        elif local and local > worker.dp:
            key = "data-parallel-size-local"
            problem = f"{key} {local} is above data-parallel-size {worker.dp}"
        else:
            continue
        yield RuleResult(
            location=worker.config_location(key),
            message=problem,
            fix=Fix(text=f"Remove {key}.", config={key: None}),
        )


def overlap_without_deepep(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _vllm_workers(deployment):
        backend = worker.get("all2all-backend") or worker.env("VLLM_ALL2ALL_BACKEND")
        if worker.get("enable-dbo") is True and backend not in ALL_TO_ALL:
            yield RuleResult(
                location=worker.config_location("enable-dbo"),
                message=f"enable-dbo requires a DeepEP all2all-backend, got {backend or 'none'}",
                fix=Fix(
                    text="Set all2all-backend to deepep_low_latency.",
                    config={"all2all-backend": "deepep_low_latency"},
                ),
            )


def draft_parallelism(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _vllm_workers(deployment):
        section = worker.value("speculation")
        if not isinstance(section, Mapping) or not worker.is_laid_out:
            continue
        own = positive_int(section.get("draft_tensor_parallel_size"))
        if section.get("tensor_parallel_size") is not None:
            key, problem = "tensor_parallel_size", "is not a key of speculative-config"
        elif own is not None and own not in (1, worker.tp):
            key = "draft_tensor_parallel_size"
            problem = f"is {own}, but must be 1 or tensor-parallel-size {worker.tp}"
        else:
            continue
        yield RuleResult(
            location=worker.config_location(f"speculative-config.{key}"),
            message=f"{key} {problem}",
            fix=Fix(text="Rename it to draft_tensor_parallel_size.")
            if own is None
            else Fix(
                text="Set draft_tensor_parallel_size to 1.",
                config={"speculative-config.draft_tensor_parallel_size": 1},
            ),
        )
