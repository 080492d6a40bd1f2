"""Rules of speculative decoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelFacts
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# From this batch size on, EAGLE-3 gives no speedup (TensorRT-LLM#12130: 1.00× on 8 H200).
NO_GAIN_BATCH = 128
SHORT_CONTEXT = 8192
LONG_CONTEXT = "nvidia/gpt-oss-120b-Eagle3-v3"
# Models whose MTP class implements SupportsPP in vLLM before 0.31.
STAGED_DRAFTS = ("nemotron_h", "glm4_moe_lite", "glm_ocr")
WIDEST = 32  # kMaxTriedPerLevel of TensorRT-LLM's dynamicTreeKernels.cu


def speculating_workers(
    deployment: ServingDeployment,
) -> Iterator[tuple[Worker, Mapping[str, Any]]]:
    """Workers with a speculative configuration that is a mapping (TensorRT-LLM's and vLLM's)."""
    for worker in deployment.workers:
        value = worker.value("speculation")
        if isinstance(value, Mapping):
            yield worker, value


def _draft_model(value: Mapping[str, Any]) -> str:
    names = ("speculative_model", "speculative_model_dir", "model")
    return next((str(value[n]) for n in names if value.get(n)), "")


def draft_length(value: Mapping[str, Any]) -> int | None:
    return positive_int(value.get("max_draft_len") or value.get("num_speculative_tokens"))


def _key(worker: Worker, key: str) -> str:
    return f"{COMMON_SETTINGS['speculation'][worker.engine]}.{key}"


def contradicting_schedules(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        schedule = value.get("draft_len_schedule")
        if schedule and value.get("max_concurrency"):
            yield RuleResult(
                location=worker.config_location(_key(worker, "max_concurrency")),
                message="max_concurrency and draft_len_schedule are mutually exclusive",
                fix=Fix(text="Keep draft_len_schedule and drop max_concurrency."),
            )
        if isinstance(schedule, Mapping) and schedule:
            first = min(schedule, key=lambda k: positive_int(k) or 0)
            if draft_length(value) and positive_int(schedule[first]) != draft_length(value):
                yield RuleResult(
                    location=worker.config_location(_key(worker, "draft_len_schedule")),
                    message=f"draft_len_schedule begins with {schedule[first]}, but "
                    f"max_draft_len is {draft_length(value)}",
                    fix=Fix(
                        text=f"Set the first entry of draft_len_schedule to {draft_length(value)}."
                    ),
                )


def tree_without_width(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        width = positive_int(value.get("dynamic_tree_max_topK"))
        is_bounded = value.get("use_rejection_sampling") is True
        is_tree = value.get("use_dynamic_tree") is True
        if is_tree and (not width or (is_bounded and width > WIDEST)):
            yield RuleResult(
                location=worker.config_location(_key(worker, "dynamic_tree_max_topK")),
                message="use_dynamic_tree requires dynamic_tree_max_topK from 1 to "
                f"{WIDEST}, got {width or 'none'}",
                fix=Fix(
                    text=f"Set dynamic_tree_max_topK to a value from 1 to {WIDEST}.",
                    config={_key(worker, "dynamic_tree_max_topK"): 4},
                ),
            )


def sampling_with_suffix_automaton(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        if value.get("use_rejection_sampling") is True and value.get("sa_config") is not None:
            yield RuleResult(
                location=worker.config_location(_key(worker, "use_rejection_sampling")),
                message="use_rejection_sampling and sa_config are mutually exclusive",
                fix=Fix(text="Remove use_rejection_sampling or sa_config."),
            )


def speculation_with_pipeline_parallelism(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        value = worker.value("speculation")
        if worker.pp < 2 or not value:
            continue
        kind = str(value.get("method", "")) if isinstance(value, Mapping) else str(value)
        is_gpt_oss = deployment.model is not None and deployment.model.is_gpt_oss
        limits: list[tuple[Versions | None, Level | None]] = []
        if worker.is_trtllm:
            limits = [(None, None)]
        elif worker.engine is Engine.SGLANG:
            limits = [(Versions(sglang="<0.5.21"), None)]
            if not _supports_pipeline(worker, kind):
                limits.append((Versions(sglang=">=0.5.21"), None))
        elif worker.engine is Engine.VLLM:
            limits = [*_vllm_limits(kind, deployment.facts_of(worker), is_gpt_oss=is_gpt_oss)]
        for versions, level in limits:
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message="speculative decoding is not supported with pipeline parallelism "
                f"({worker.pp})",
                fix=Fix(text="Use tensor parallelism, or disable speculative decoding."),
                versions=versions,
                level=level,
            )


def _vllm_limits(
    kind: str, facts: ModelFacts | None, *, is_gpt_oss: bool
) -> Iterator[tuple[Versions, Level | None]]:
    """The versions that refuse a draft method with pipeline stages, and the level."""
    method = current_method(kind)
    has_stages = method == "mtp" and facts is not None and facts.kind in STAGED_DRAFTS
    if method.startswith(("eagle", "mtp")) and not has_stages:
        yield Versions(vllm="<0.31"), None
    if method.startswith("eagle"):
        # vLLM passes on EAGLE-3's hidden states in Llama, Qwen2 and MiMo.
        yield Versions(vllm=">=0.31"), None if is_gpt_oss else Level.WARNING


def current_method(name: str) -> str:
    """The method's current name in vLLM: deepseek_mtp and the like are MTP."""
    return "mtp" if name.endswith("_mtp") else name


def _supports_pipeline(worker: Worker, algorithm: str) -> bool:
    """As check_pipeline_parallel_compat of SGLang decides."""
    aggregated = str(worker.env("SGLANG_ENABLE_PP_SPEC") or "").lower() in ("1", "true", "yes", "y")
    if algorithm.upper() == "DSPARK":
        return worker.role is Role.PREFILL and not aggregated
    role = Role.WORKER if aggregated else Role.PREFILL
    return algorithm.upper() in ("EAGLE", "NEXTN") and worker.role is role


def short_context_draft_model(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        model, length = _draft_model(value), worker.count("context_length")
        key = "speculative_model" if worker.is_trtllm else "model"
        is_short = model.endswith(("Eagle3-v2", "Eagle3-short-context"))
        if is_short and length and length > SHORT_CONTEXT:
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"{model} was trained for up to {SHORT_CONTEXT:,} tokens, but the "
                f"context length is {length:,}",
                fix=Fix(
                    text=f"Use {LONG_CONTEXT}, which supports long contexts.",
                    config={_key(worker, key): LONG_CONTEXT},
                    graph={"speculation.draft_model": LONG_CONTEXT},
                )
                if "gpt-oss-120b" in model
                else Fix(text="Use a draft model that was trained for long contexts."),
            )


def single_token_draft_model(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        model, length = _draft_model(value), draft_length(value)
        if model.endswith("Eagle3-throughput") and length and length > 1:
            key = "max_draft_len" if worker.is_trtllm else "num_speculative_tokens"
            yield RuleResult(
                location=worker.config_location(_key(worker, key)),
                message=f"{model} predicts one token, but {length} draft tokens are configured",
                fix=Fix(
                    text="Set the number of draft tokens to 1.",
                    config={_key(worker, key): 1},
                    graph={"speculation.draft_tokens": 1},
                ),
            )


def speculation_in_large_batches(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        batch = worker.count("max_sequences")
        setting = worker.settings.common("max_sequences")
        scheduled = value.get("max_concurrency") or value.get("draft_len_schedule")
        is_eagle = str(value.get("decoding_type", "")).startswith("Eagle")
        if is_eagle and setting and batch and batch >= NO_GAIN_BATCH and not scheduled:
            yield RuleResult(
                location=setting.location,
                message=f"speculative decoding is enabled for batches of up to {batch} sequences",
                fix=Fix(
                    text="Set max_concurrency to 32, so that larger batches are not drafted.",
                    config={_key(worker, "max_concurrency"): 32},
                ),
            )


def untested_block_reuse(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        is_eagle = str(value.get("decoding_type", "")).startswith("Eagle")
        is_gpt_oss = deployment.model is not None and deployment.model.is_gpt_oss
        reuses = worker.get("kv_cache_config.enable_block_reuse") is not False
        if worker.is_trtllm and is_eagle and is_gpt_oss and reuses:
            yield RuleResult(
                location=worker.config_location("kv_cache_config.enable_block_reuse"),
                message="EAGLE-3 and block reuse are both enabled for gpt-oss, which no "
                "published configuration does",
                fix=Fix(text="Compare acceptance rate and output with and without block reuse."),
            )
