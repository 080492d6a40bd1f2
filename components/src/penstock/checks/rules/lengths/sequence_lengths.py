"""Rules about the lengths of sequences, prompts and steps."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import AGREEMENT, ARITHMETIC, PENSTOCK, UNCHANGED
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelShape
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# Keys that may extend the context beyond the positions in config.json (RoPE scaling).
EXTENDED = ("hf-overrides", "json-model-override-args", "model_kwargs")
# Variables with which an engine accepts the length and only logs a warning.
ALLOWS_LONGER = {
    Engine.VLLM: "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    Engine.SGLANG: "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    Engine.TRTLLM: "TLLM_ALLOW_LONG_MAX_MODEL_LEN",
}


def chunks_prompts(worker: Worker) -> bool | None:
    """Whether prefill is chunked; None where the engine decides by model and GPU."""
    if worker.is_trtllm:
        return worker.get("enable_chunked_prefill") is True
    if worker.engine is Engine.VLLM:
        return worker.get("enable-chunked-prefill") is not False
    return None


@rule(
    id="PS120",
    title="the context length exceeds the model's limit",
    level=Level.ERROR,
    cause="The context length is larger than the number of positions that the model supports.",
    effect="vLLM and SGLang do not start. TensorRT-LLM uses the model's limit, and refuses longer "
    "requests. If a variable allows more (VLLM_ALLOW_LONG_MAX_MODEL_LEN, "
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN, TLLM_ALLOW_LONG_MAX_MODEL_LEN), the engine accepts "
    "the length, but output beyond the limit may be wrong.",
    remedy="Set at most the model's max_position_embeddings.",
    source="vllm/config/model.py 0.10 to 0.31; sglang/srt/configs/model_config.py 0.5.0 to "
    "0.5.21; _init_max_seq_len in tensorrt_llm/_torch/pyexecutor/model_engine.py; vllm#7080, "
    "vllm#17924",
    versions=UNCHANGED,
    engines=(Engine.TRTLLM, Engine.VLLM, Engine.SGLANG),
    other_levels=(Level.WARNING,),
    exceptions="Nothing is reported if the file changes the model's configuration: "
    "hf-overrides, json-model-override-args or model_kwargs. With TensorRT-LLM, or with the "
    "variable that allows longer sequences, it is a warning.",
)
def context_exceeds_positions(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        setting = worker.settings.common("context_length")
        length = worker.count("context_length")
        model = deployment.model
        is_allowed = bool(worker.env(ALLOWS_LONGER.get(worker.engine, "")))
        if setting and length and model and _exceeds_positions(deployment, worker):
            key = COMMON_SETTINGS["context_length"][worker.engine]
            configured = deployment.context_length or model.positions  # PS126 requires it
            yield RuleResult(
                location=setting.location,
                message=f"the context length is {length:,} tokens, but {model.name} supports "
                f"only {model.positions:,} positions",
                fix=Fix(
                    text=f"Set the context length to at most {model.positions}.",
                    config={key: min(configured, model.positions)},
                ),
                why=_beyond_positions(worker, model.positions, is_allowed=is_allowed),
                level=Level.WARNING if is_allowed or worker.is_trtllm else None,
            )


def _exceeds_positions(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether its context length exceeds the model's limit, and no setting extends the limit."""
    limit, length = deployment.model and deployment.model.positions, worker.count("context_length")
    is_extended = any(worker.get(key) for key in EXTENDED)
    return bool(limit and length and length > limit and not is_extended)


def _beyond_positions(worker: Worker, positions: int, *, is_allowed: bool) -> str:
    """What the engine does with the length; empty for the rule's text."""
    if is_allowed:
        return (
            f"{ALLOWS_LONGER[worker.engine]} allows it, but output beyond the limit may be wrong."
        )
    if worker.is_trtllm:
        return (
            f"TensorRT-LLM lowers the limit to {positions:,} tokens with a warning in its log, and "
            "refuses longer requests."
        )
    return ""


@rule(
    id="PS121",
    title="prompts do not fit in one step and are not chunked",
    level=Level.ERROR,
    cause="Without chunked prefill a prompt must fit in one step, and the tokens per step are "
    "fewer than the context length.",
    effect="TensorRT-LLM fails longer prompts with HTTP 500; vLLM does not start.",
    remedy="Enable chunked prefill, or raise the tokens per step.",
    source="Dynamo 1.6.0 known issues; trtllm#9277; vllm#33109",
    versions=UNCHANGED,
    engines=(Engine.TRTLLM, Engine.VLLM),
    other_levels=(Level.WARNING, Level.NOTE),
    exceptions="With TensorRT-LLM, it is a warning, because only long prompts fail, or a note if "
    "the file sets neither the tokens per step nor the context length.",
)
def prompt_exceeds_step(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        longest, tokens = deployment.longest_prompt(worker), worker.count("max_batch_tokens")
        if (
            (worker.is_trtllm and not worker.runs_prefill)
            or chunks_prompts(worker) is not False
            or not worker.settings.is_complete
        ):
            continue
        if longest and tokens and tokens < longest:
            key = "enable_chunked_prefill" if worker.is_trtllm else "enable-chunked-prefill"
            yield RuleResult(
                location=worker.settings.location("max_batch_tokens"),
                message=f"a step processes at most {tokens:,} tokens and chunked prefill is "
                f"disabled, but prompts may have {longest:,} tokens",
                fix=Fix(text=f"Set {key} to true.", config={key: True}),
                level=_level_of_long_prompts(worker),
            )


def _level_of_long_prompts(worker: Worker) -> Level | None:
    """A lower level for TensorRT-LLM, which refuses only the long prompts; None for vLLM."""
    if not worker.is_trtllm:
        return None
    names = ("max_batch_tokens", "context_length")
    is_set = any(worker.settings.common(name) is not None for name in names)
    return Level.WARNING if is_set else Level.NOTE


@rule(
    id="PS122",
    title="max_num_tokens is not a multiple of the KV block size",
    level=Level.WARNING,
    cause="max_num_tokens of a prefill worker with chunked prefill is not a multiple of "
    "tokens_per_block.",
    effect="The worker may crash when a chunk ends inside a block.",
    remedy="Round max_num_tokens up to a multiple of tokens_per_block.",
    source="AISimulate generator rules, marked CRASH",
    versions=ARITHMETIC,
    engines=(Engine.TRTLLM,),
    exceptions="It applies to prefill workers of disaggregated deployments.",
)
def partial_block_step(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        block, tokens = worker.count("block_size"), worker.count("max_batch_tokens")
        setting = worker.settings.common("max_batch_tokens")
        if not worker.is_trtllm or not setting or not block or not tokens or not tokens % block:
            continue
        is_chunked = worker.get("enable_chunked_prefill") is True
        if is_chunked and worker.runs_prefill and deployment.is_disaggregated:
            rounded = -(-tokens // block) * block
            yield RuleResult(
                location=setting.location,
                message=f"max_num_tokens {tokens} is not a multiple of tokens_per_block {block}",
                fix=Fix(
                    text=f"Set max_num_tokens to {rounded}.", config={"max_num_tokens": rounded}
                ),
            )


@rule(
    id="PS123",
    title="the decode context length is shorter than the prefill context length",
    level=Level.WARNING,
    cause="The decode workers' context length, for prompt and output together, is below that of "
    "the prefill workers.",
    effect="Long prompts are prefilled and transferred, and then rejected by the decode worker.",
    remedy="Give decode workers at least the prefill workers' context length.",
    source="AISimulate generator rules; recipes/gpt-oss-120b/trtllm/disagg (9000 and 11000)",
    versions=AGREEMENT,
)
def shorter_decode_context(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        first, second = prefill.count("context_length"), decode.count("context_length")
        needed = first
        if deployment.model and _exceeds_positions(deployment, prefill):
            needed = deployment.model.positions  # to which PS120 lowers it
        if first and second and needed and second < needed:
            key = COMMON_SETTINGS["context_length"][decode.engine]
            yield RuleResult(
                location=decode.settings.location("context_length"),
                message=f"{decode.name} has a context length of {second:,} tokens, but "
                f"{prefill.name} has {first:,}",
                fix=Fix(
                    text=f"Raise {key} of {decode.name} to at least {needed}.", config={key: needed}
                ),
            )


@rule(
    id="PS126",
    title="the context length differs from model.context_length",
    level=Level.WARNING,
    cause="The engine's own key sets another length than model.context_length.",
    effect="Requests that model.context_length allows are rejected, or memory is reserved for "
    "longer ones. `penstock verify` fails.",
    remedy="Set the length only in model.context_length.",
    source="penstock",
    versions=PENSTOCK,
)
def context_length_differs(deployment: ServingDeployment) -> Iterable[RuleResult]:
    configured = deployment.context_length
    for worker in deployment.workers:
        length = worker.count("context_length")
        if configured and length and length != configured and worker.settings.is_complete:
            yield RuleResult(
                location=worker.settings.location("context_length"),
                message=f"{worker.name} has a context length of {length:,} tokens, but "
                f"model.context_length is {configured:,}",
                fix=Fix(
                    text=f"Set {COMMON_SETTINGS['context_length'][worker.engine]} to {configured}.",
                    config={COMMON_SETTINGS["context_length"][worker.engine]: configured},
                ),
            )


@rule(
    id="PS124",
    title="max-num-batched-tokens is below max-num-seqs",
    level=Level.ERROR,
    cause="max-num-batched-tokens is below max-num-seqs.",
    effect="vLLM exits at startup.",
    remedy="Raise max-num-batched-tokens or lower max-num-seqs.",
    source="vllm/config/scheduler.py 0.31.0; vllm#1658",
    versions=UNCHANGED,
    engines=(Engine.VLLM,),
)
def fewer_tokens_than_sequences(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.VLLM:
            continue
        tokens, sequences = worker.count("max_batch_tokens"), worker.count("max_sequences")
        if tokens and sequences and tokens < sequences:
            yield RuleResult(
                location=worker.settings.location("max_batch_tokens"),
                message=f"max-num-batched-tokens {tokens} is below max-num-seqs {sequences}",
                fix=Fix(
                    text=f"Raise max-num-batched-tokens to at least max-num-seqs ({sequences}).",
                    config={"max-num-batched-tokens": sequences},
                ),
            )


@rule(
    id="PS125",
    title="no context length is set",
    level=Level.NOTE,
    cause="No setting limits the length of a sequence, so the engine uses the model's limit.",
    effect="KV cache and transfer buffers are sized for that limit.",
    example="One sequence of gpt-oss-120b needs 4.5 GiB of fp8 KV.",
    remedy="Set model.context_length, or the engine's own key.",
    source="TensorRT-LLM llm_args.py (max_seq_len), vllm/config/model.py",
    versions=UNCHANGED,
)
def no_context_length(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL, Role.WORKER):
        setting = worker.settings.common("context_length")
        if setting is None and worker.settings.is_complete and worker.engine is not Engine.MOCKER:
            model = deployment.model
            limit = f", {model.positions:,} tokens" if model else ""
            length = min(32768, model.positions) if model else 32768
            yield RuleResult(
                location=worker.settings.location("context_length"),
                message=f"no context length is set, so the engine uses the model's limit{limit}",
                why=_longest_kv(worker, model),
                fix=Fix(
                    text="Set the context length to the longest sequence that you expect.",
                    config={COMMON_SETTINGS["context_length"][worker.engine]: length},
                    graph={"model.context_length": length},
                ),
            )


def _longest_kv(worker: Worker, model: ModelShape | None) -> str:
    """The consequence with the KV of the longest sequence; empty if that is unknown."""
    kv_dtype = str(worker.value("kv_dtype") or "auto")
    block = worker.count("block_size") or 1
    size = model.kv_bytes(model.positions, block, kv_dtype) if model else None
    if model is None or size is None:
        return ""
    return (
        f"KV cache and transfer buffers are sized for that limit: one sequence of "
        f"{model.positions:,} tokens needs {size / 2**30:.1f} GiB of KV."
    )
