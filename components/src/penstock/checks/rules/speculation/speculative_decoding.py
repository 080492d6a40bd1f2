"""Rules of speculative decoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import WORDS
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker, positive_int

# From this batch on EAGLE-3 gains nothing (TensorRT-LLM#12130: 1.00× at 128 on 8 H200).
NO_GAIN = 128
SHORT_CONTEXT = 8192
WIDEST = 32  # kMaxTriedPerLevel of TensorRT-LLM's dynamicTreeKernels.cu
ASYNC = (
    *("eagle", "eagle3", "mtp", "draft_model", "ngram_gpu", "dspark", "dflash"),
    "extract_hidden_states",
)


def drafting(deployment: ServingDeployment) -> Iterator[tuple[Worker, Mapping[str, Any]]]:
    """Workers with a speculative configuration that is a mapping (TensorRT-LLM's and vLLM's)."""
    for worker in deployment.workers:
        value = worker.value("speculation")
        if isinstance(value, Mapping):
            yield worker, value


def _model(value: Mapping[str, Any]) -> str:
    names = ("speculative_model", "speculative_model_dir", "model")
    return next((str(value[n]) for n in names if value.get(n)), "")


def _length(value: Mapping[str, Any]) -> int | None:
    return positive_int(value.get("max_draft_len") or value.get("num_speculative_tokens"))


def _at(worker: Worker, key: str) -> str:
    return f"{WORDS['speculation'][worker.engine]}.{key}"


@rule(
    id="PS131",
    title="two ways to say how much to draft",
    level=Level.ERROR,
    cause="max_concurrency and draft_len_schedule exclude each other, and a schedule begins "
    "with max_draft_len.",
    effect="The worker ends at its start.",
    remedy="Keep one.",
    source="DecodingBaseConfig in TensorRT-LLM llm_args.py",
)
def two_schedules(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        schedule = value.get("draft_len_schedule")
        if schedule and value.get("max_concurrency"):
            yield RuleResult(
                location=worker.config(_at(worker, "max_concurrency")),
                message="max_concurrency and draft_len_schedule exclude each other",
                fix=Fix(text="keep draft_len_schedule"),
            )
        if isinstance(schedule, Mapping) and schedule:
            first = min(schedule, key=lambda k: positive_int(k) or 0)
            if _length(value) and positive_int(schedule[first]) != _length(value):
                yield RuleResult(
                    location=worker.config(_at(worker, "draft_len_schedule")),
                    message=f"draft_len_schedule begins with {schedule[first]}, and max_draft_len "
                    f"is {_length(value)}",
                    fix=Fix(text="the smallest batch drafts max_draft_len tokens"),
                )


@rule(
    id="PS132",
    title="a draft tree without a width",
    level=Level.ERROR,
    cause="use_dynamic_tree needs dynamic_tree_max_topK, with use_rejection_sampling of at "
    "most 32.",
    effect="The worker ends at its start.",
    remedy="Set it.",
    source="EagleDecodingConfig and validate_speculative_config in TensorRT-LLM llm_args.py",
)
def tree_without_width(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        width = positive_int(value.get("dynamic_tree_max_topK"))
        is_bounded = value.get("use_rejection_sampling") is True
        is_tree = value.get("use_dynamic_tree") is True
        if is_tree and (not width or (is_bounded and width > WIDEST)):
            yield RuleResult(
                location=worker.config(_at(worker, "dynamic_tree_max_topK")),
                message=f"use_dynamic_tree with dynamic_tree_max_topK {width or 'unset'}",
                fix=Fix(text="set 1 to 32", config={_at(worker, "dynamic_tree_max_topK"): 4}),
            )


@rule(
    id="PS133",
    title="rejection sampling with a suffix automaton",
    level=Level.ERROR,
    cause="use_rejection_sampling excludes sa_config.",
    effect="The worker ends at its start.",
    remedy="Remove one.",
    source="validate_speculative_config in TensorRT-LLM llm_args.py",
)
def sampling_with_sa(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        if value.get("use_rejection_sampling") is True and value.get("sa_config") is not None:
            yield RuleResult(
                location=worker.config(_at(worker, "use_rejection_sampling")),
                message="use_rejection_sampling and sa_config exclude each other",
                fix=Fix(text="remove one of them"),
            )


@rule(
    id="PS134",
    title="speculation over pipeline stages",
    level=Level.ERROR,
    cause="Drafting and pipeline parallelism do not go together in TensorRT-LLM, nor MTP in "
    "vLLM, nor EAGLE there but with Llama, Qwen2 and MiMo; SGLang has EAGLE on prefill workers "
    "alone.",
    effect="The engine does not start.",
    remedy="Tensor parallelism, or no speculation.",
    source="TensorRT-LLM#14195 (feature matrix); vllm#52069 and eagle3_utils.py 0.31.0; "
    "sglang#37154 and validation_hook.py 0.5.21",
)
def with_pipeline(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        value = worker.value("speculation")
        kind = str(value.get("method", "")) if isinstance(value, Mapping) else str(value or "")
        vllms = worker.engine is Engine.VLLM and _method(kind).startswith(("eagle", "mtp"))
        sglangs = worker.engine is Engine.SGLANG and value and not _stages_draft(worker, kind)
        if worker.pp > 1 and ((worker.is_trtllm and value) or vllms or sglangs):
            # vLLM hands EAGLE-3's hidden states on in Llama, Qwen2 and MiMo.
            is_gpt_oss = deployment.model is not None and deployment.model.is_gpt_oss
            may_run = vllms and kind.startswith("eagle") and not is_gpt_oss
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"speculation with pipeline parallelism {worker.pp}",
                fix=Fix(text="use tensor parallelism, or no speculation"),
                level=Level.WARNING if may_run else None,
            )


def _method(name: str) -> str:
    """vLLM's former names for MTP, deepseek_mtp and the like, are MTP to it."""
    return "mtp" if name.endswith("_mtp") else name


def _stages_draft(worker: Worker, algorithm: str) -> bool:
    """SGLang's check_pipeline_parallel_compat."""
    aggregated = str(worker.env("SGLANG_ENABLE_PP_SPEC") or "").lower() in ("1", "true", "yes", "y")
    if algorithm.upper() == "DSPARK":
        return worker.role is Role.PREFILL and not aggregated
    role = Role.WORKER if aggregated else Role.PREFILL
    return algorithm.upper() in ("EAGLE", "NEXTN") and worker.role is role


@rule(
    id="PS135",
    title="a draft model of short context",
    level=Level.WARNING,
    cause="The draft model was trained for less than 8,192 tokens.",
    effect="Few drafts are accepted beyond, so each step costs more than it gains.",
    remedy="nvidia/gpt-oss-120b-Eagle3-v3 or -long-context.",
    source="model cards of nvidia/gpt-oss-120b-Eagle3-v2 and -short-context",
)
def draft_of_short_context(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        model, length = _model(value), worker.count("context_length")
        key = "speculative_model" if worker.is_trtllm else "model"
        is_short = model.endswith(("Eagle3-v2", "Eagle3-short-context"))
        if is_short and length and length > SHORT_CONTEXT:
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"{model} was trained for up to {SHORT_CONTEXT:,} tokens, and the context "
                f"is {length:,}",
                fix=Fix(
                    text="use the one for long contexts",
                    config={_at(worker, key): "nvidia/gpt-oss-120b-Eagle3-v3"},
                    graph={"speculation.draft_model": "nvidia/gpt-oss-120b-Eagle3-v3"},
                ),
            )


@rule(
    id="PS136",
    title="a draft model of one token asked for more",
    level=Level.ERROR,
    cause="The throughput head predicts a single token.",
    effect="Further drafts are noise, and their verification is paid for.",
    remedy="Draft one.",
    source="model card of nvidia/gpt-oss-120b-Eagle3-throughput",
)
def draft_of_one_token(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        model, length = _model(value), _length(value)
        if model.endswith("Eagle3-throughput") and length and length > 1:
            key = "max_draft_len" if worker.is_trtllm else "num_speculative_tokens"
            yield RuleResult(
                location=worker.config(_at(worker, key)),
                message=f"{model} drafts one token, and {length} are asked for",
                fix=Fix(
                    text="draft one",
                    config={_at(worker, key): 1},
                    graph={"speculation.draft_tokens": 1},
                ),
            )


@rule(
    id="PS137",
    title="speculation in large batches",
    level=Level.WARNING,
    cause="The GPU is busy with the batch itself: nothing is left over for drafts.",
    effect="1.97× at batch 1, 1.31× at 32, 1.00× at 128 on 8 H200, and below that beyond.",
    remedy="Bound it with max_concurrency or draft_len_schedule, or leave it out.",
    source="TensorRT-LLM#12130",
)
def drafts_for_many(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        batch = worker.count("max_sequences")
        said = worker.settings.word("max_sequences")
        scheduled = value.get("max_concurrency") or value.get("draft_len_schedule")
        is_eagle = str(value.get("decoding_type", "")).startswith("Eagle")
        if is_eagle and said and batch and batch >= NO_GAIN and not scheduled:
            yield RuleResult(
                location=said.location,
                message=f"speculation with batches up to {batch}",
                fix=Fix(
                    text="stop drafting in large batches",
                    config={_at(worker, "max_concurrency"): 32},
                ),
            )


@rule(
    id="PS138",
    title="EAGLE by half in SGLang",
    level=Level.ERROR,
    cause="Steps, top-k and draft tokens are set all together or not at all; the tokens may "
    "miss where top-k is 1.",
    effect="A TypeError or an assertion at the start.",
    remedy="3, 1 and 4, SGLang's own choice for gpt-oss.",
    source="sglang#22895",
)
def partial_eagle(deployment: ServingDeployment) -> Iterable[RuleResult]:
    names = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
    for worker in deployment.workers:
        algorithm = str(worker.value("speculation") or "").upper()
        is_eagle = algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
        if worker.engine is not Engine.SGLANG or not is_eagle or worker.get("speculative-adaptive"):
            continue
        there = [name for name in names if worker.get(name) is not None]
        # With one branch SGLang reckons the draft tokens from the steps.
        is_chain = there == [*names[:2]] and positive_int(worker.get(names[1])) == 1
        if there and len(there) < len(names) and not is_chain:
            missing = [name for name in names if name not in there]
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"{', '.join(there)} without {', '.join(missing)}",
                fix=Fix(text="all three, or none", config=dict(zip(names, (3, 1, 4), strict=True))),
            )


@rule(
    id="PS152",
    title="a draft tree on attention that knows chains alone",
    level=Level.ERROR,
    cause="SGLang's trtllm_mha attention verifies one candidate a step.",
    effect="ValueError at the start.",
    remedy="speculative-eagle-topk 1, or another attention backend.",
    source="docs.sglang.io, speculative decoding; sglang/srt/server_args.py 0.5.21",
)
def tree_on_other_attention(deployment: ServingDeployment) -> Iterable[RuleResult]:
    names = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    for worker in deployment.workers:
        width = positive_int(worker.get("speculative-eagle-topk")) or 1
        backends = [worker.get(name) for name in names]
        if worker.engine is Engine.SGLANG and width > 1 and "trtllm_mha" in backends:
            yield RuleResult(
                location=worker.config("speculative-eagle-topk"),
                message=f"speculative-eagle-topk {width} on attention backend trtllm_mha",
                fix=Fix(text="draft a chain", config={"speculative-eagle-topk": 1}),
            )


@rule(
    id="PS139",
    title="asynchronous scheduling that cannot draft",
    level=Level.ERROR,
    cause="vLLM's asynchronous scheduler takes EAGLE, MTP and draft models only.",
    effect="vLLM ends at its start.",
    remedy="Leave the flag out: vLLM switches it on where it can.",
    source="vllm#31998",
)
def asynchronous(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        method = str(value.get("method", ""))
        if worker.engine is Engine.VLLM and worker.get("async-scheduling") is True:
            if method and _method(method) not in ASYNC:
                yield RuleResult(
                    location=worker.config("async-scheduling"),
                    message=f"async-scheduling with speculative method {method}",
                    fix=Fix(text="leave it out", config={"async-scheduling": False}),
                )


@rule(
    id="PS140",
    title="EAGLE-3 with block reuse on gpt-oss",
    level=Level.NOTE,
    cause="Every published EAGLE-3 configuration of gpt-oss switches block reuse off; for "
    "another model one has it on.",
    effect="Not known; a wrong draft cache would lower acceptance, not change answers.",
    remedy="Measure acceptance before relying on it.",
    source="TensorRT-LLM blog 11@2772a81b; recipes/kimi-k2.5/trtllm/agg-eagle-kv-router",
)
def reuse_untested(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in drafting(deployment):
        is_eagle = str(value.get("decoding_type", "")).startswith("Eagle")
        gpt_oss = deployment.model is not None and deployment.model.is_gpt_oss
        reuses = worker.get("kv_cache_config.enable_block_reuse") is not False
        if worker.is_trtllm and is_eagle and gpt_oss and reuses:
            yield RuleResult(
                location=worker.config("kv_cache_config.enable_block_reuse"),
                message="EAGLE-3 with block reuse on gpt-oss: no published configuration has both",
                fix=Fix(text="compare answers with and without before relying on it"),
            )


# Methods of vLLM whose draft is no model of its own (`SpeculativeConfig.__post_init__` 0.31.0).
WITHOUT_MODEL = (
    *("mtp", "dspark", "ngram", "[ngram]", "ngram_gpu", "suffix", "custom_class"),
    "extract_hidden_states",
)
SGLANG_WITH_MODEL = ("EAGLE3", "STANDALONE", "DFLASH")


@rule(
    id="PS154",
    title="speculation without a draft model",
    level=Level.ERROR,
    cause="The method drafts with a model of its own, and none is named.",
    effect="vLLM and SGLang's DFLASH end at their start; SGLang's EAGLE3 and STANDALONE load "
    "the target as its own draft.",
    remedy="Name the draft model.",
    source="vllm/config/speculative.py 0.31.0; sglang/srt/arg_groups/speculative_hook.py 0.5.21",
)
def no_draft_model(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        value = worker.value("speculation")
        if worker.engine is Engine.VLLM and isinstance(value, Mapping) and _length(value):
            method, key = str(value.get("method") or "draft_model"), "speculative-config.model"
            needs = _method(method) not in WITHOUT_MODEL
        elif worker.engine is Engine.SGLANG and value:
            method, key = str(value), "speculative-draft-model-path"
            needs = method.upper() in SGLANG_WITH_MODEL
        else:
            continue
        if needs and not worker.get(key):
            is_120b = deployment.model is not None and deployment.model.name.endswith(
                "gpt-oss-120b"
            )
            config = {key: "nvidia/gpt-oss-120b-Eagle3-v3"} if is_120b else {}
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"speculation by {method}, and no draft model is named",
                fix=Fix(text=f"name one in {key}", config=config),
            )
