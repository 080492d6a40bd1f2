"""Rules of vLLM's and SGLang's own limits: sections, graph sizes, layouts that they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.versions.image_versions import as_of_newest
from penstock.engines.sections import ALIASES, Misfit, misfits, sections
from penstock.engines.settings import PARTS
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import EP_SPANNING, Worker

DCP = "decode-context-parallel-size"
SIZES, LARGEST = "cudagraph-capture-sizes", "max-cudagraph-capture-size"
TBO = "enable-two-batch-overlap"
# Flags that vLLM refuses beside the key for which they stand (vllm/engine/arg_utils.py 0.31.0).
TWICE: Mapping[str, tuple[str, ...]] = {
    SIZES: ("compilation-config", "cudagraph_capture_sizes"),
    LARGEST: ("compilation-config", "max_cudagraph_capture_size"),
    "attention-backend": ("attention-config", "backend"),
    "enable-flashinfer-autotune": ("kernel-config", "enable_flashinfer_autotune"),
    **{flag: tuple(key.split(".")) for flag, key in PARTS.items()},
}
KV_ROLE = ("kv-transfer-config", "kv_role")  # PS416 knows more about it


def _of(deployment: ServingDeployment, engine: Engine) -> Iterable[Worker]:
    return (worker for worker in deployment.workers if worker.engine is engine)


@rule(
    id="PS155",
    title="what vLLM's section does not take",
    level=Level.ERROR,
    cause="A key inside of a flag's JSON that the section does not have, or a value outside of "
    "its choices or bounds.",
    effect="vLLM ends at its start with a validation error.",
    remedy="The nearest name.",
    source="configuration classes of vLLM 0.31.0, dumped to a table",
)
@as_of_newest
def misfit_in_section(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.VLLM):
        for flag in (*sections(), *ALIASES):
            for misfit in misfits(flag, worker.get(flag)):
                if (flag, *misfit.path) == KV_ROLE:
                    continue
                key = ".".join((flag, *misfit.path))
                yield RuleResult(
                    location=worker.config(key),
                    message=f"{flag}: {misfit.message}"
                    if misfit.is_key or not misfit.path
                    else f"{key} {misfit.message}",
                    fix=_fix(worker, flag, key, misfit),
                )


def _fix(worker: Worker, flag: str, key: str, misfit: Misfit) -> Fix:
    if misfit.instead:
        return Fix(text=f"use {misfit.instead}")
    if not misfit.path and flag in sections():
        return Fix(text="write a mapping of its keys")
    if not misfit.near:
        return Fix(text=f"remove {key}" if misfit.is_key else "write one that it takes")
    if not misfit.is_key:
        return Fix(text=f"perhaps you meant {misfit.near}", config={key: misfit.near})
    meant = ".".join((flag, *misfit.path[:-1], misfit.near))
    words = f"perhaps you meant {misfit.near}, in place of {misfit.path[-1]}"
    at_flag = worker.config(flag).what == "args"  # whose JSON is written again without it
    config = {**({key: None} if at_flag else {}), meant: worker.get(key)}
    return Fix(text=words, config=config, replaces=key)


@rule(
    id="PS158",
    title="a part that replaces its section",
    level=Level.ERROR,
    cause="vLLM makes one value of all `--section.key` of a command line, and that replaces "
    "the section of the file, or of the flag in JSON.",
    effect="What else the section said is lost without a word, such as the KV events.",
    remedy="All of a section in one place.",
    source="vllm/utils/argparse_utils.py 0.31.0, parse_args",
)
def replaced_section(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.VLLM):
        for flag, before in worker.settings.replaced.items():
            left = worker.get(flag)
            if not isinstance(before.value, Mapping) or not isinstance(left, Mapping):
                continue
            lost = [key for key in before.value if str(key) not in left]
            if lost:
                part = worker.config(flag)
                yield RuleResult(
                    location=part,
                    message=f"{''.join(map(str, part.path))} replaces all of {flag}, and "
                    f"{', '.join(map(str, lost))} of it is lost",
                    fix=Fix(text=f"put it into {flag}, in place of the flag"),
                )


@rule(
    id="PS221",
    title="decode context parallelism that cannot be laid out",
    level=Level.ERROR,
    cause="It divides the tensor parallelism, and with grouped queries what that has beyond "
    "the KV heads; KV transfer and prefill context parallelism allow fewer values.",
    effect="vLLM refuses to start.",
    remedy="1, or tensor parallelism of that many times the KV heads.",
    source="vllm/config/parallel.py, model.py and vllm.py 0.31.0",
)
def contexts_of_decode(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.VLLM):
        dcp, model = worker.dcp, deployment.model
        if dcp == 1:
            continue
        problem = ""
        moves = worker.role is not Role.WORKER and worker.get("kv-transfer-config") is not None
        if moves and model is not None and not model.is_mla:
            problem = "beside KV transfer is for latent attention alone"
        elif moves and dcp != max(worker.tp, worker.cp):
            problem = f"is neither 1 nor {max(worker.tp, worker.cp)}, as KV transfer wants it"
        elif worker.cp > 1:
            allowed = (worker.cp, worker.tp * worker.cp)
            problem = "" if dcp in allowed else f"is none of 1, {allowed[0]} and {allowed[1]}"
        elif worker.tp % dcp:
            problem = f"does not divide tensor-parallel-size {worker.tp}"
        elif model is not None and not model.is_mla:
            most = worker.tp // model.kv_heads
            if worker.tp <= model.kv_heads or dcp > most:
                problem = f"needs tensor-parallel-size {dcp} × {model.kv_heads} KV heads at least"
            elif model.heads // model.kv_heads % dcp:
                problem = f"does not divide {model.heads // model.kv_heads} query heads per KV head"
        if problem:
            yield RuleResult(
                location=worker.config(DCP),
                message=f"{DCP} {dcp} {problem}",
                fix=Fix(text="leave it at 1", config={DCP: 1}),
            )


@rule(
    id="PS156",
    title="vLLM's graph sizes that disagree",
    level=Level.ERROR,
    cause="The largest of cudagraph-capture-sizes that a step can have is not "
    "max-cudagraph-capture-size.",
    effect="vLLM refuses to start.",
    remedy="One of them.",
    source="vllm/config/vllm.py 0.31.0",
)
def graph_sizes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.VLLM):
        if not _captures(worker):
            continue
        sizes_key, sizes = _either(worker, SIZES)
        largest_key, largest = _either(worker, LARGEST)
        tokens = worker.count("max_batch_tokens")
        listed = sizes if isinstance(sizes, list) else [sizes]
        counts = [n for size in listed if (n := positive_int(size)) and not (tokens and n > tokens)]
        if counts and positive_int(largest) and max(counts) != positive_int(largest):
            yield RuleResult(
                location=worker.config(largest_key),
                message=f"{largest_key} {largest}, and {sizes_key} go up to {max(counts)}",
                fix=Fix(text="the same largest", config={largest_key: max(counts)}),
            )


@rule(
    id="PS159",
    title="a setting by its flag and in its section",
    level=Level.ERROR,
    cause="A flag of vLLM stands for a key of a section, and both are set.",
    effect="vLLM ends at its start: they are mutually exclusive.",
    remedy="Say it in the section alone.",
    source="vllm/engine/arg_utils.py 0.31.0, create_engine_config",
)
def said_twice(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.VLLM):
        for flag, (section, key) in TWICE.items():
            whole_section = worker.settings.values.get(section)
            in_section = worker.get(f"{section}.{key}")
            if flag in PARTS:  # they make a section where there is none
                value = whole_section.value if whole_section else None
                in_section = value.get(key) if isinstance(value, Mapping) else None
            if worker.get(flag) is not None and in_section is not None:
                yield RuleResult(
                    location=worker.config(flag),
                    message=f"{flag} is set, and {section}.{key} too",
                    fix=Fix(text=f"remove one: say it in {section} alone"),
                )


def _captures(worker: Worker) -> bool:
    mode = str(worker.get("compilation-config.cudagraph_mode") or "").upper()
    level = worker.get("optimization-level")
    return worker.get("enforce-eager") is not True and mode != "NONE" and str(level) != "0"


def _either(worker: Worker, flag: str) -> tuple[str, Any]:
    """(key, value) of a flag, or of the key in compilation-config that it stands for."""
    key = f"compilation-config.{flag.replace('-', '_')}"
    own = worker.get(flag)
    return (flag, own) if own is not None else (key, worker.get(key))


@rule(
    id="PS157",
    title="a threshold of long prompts above the context length",
    level=Level.ERROR,
    cause="long-prefill-token-threshold is above max-model-len.",
    effect="vLLM refuses to start.",
    remedy="At most the context length.",
    source="vllm/config/scheduler.py 0.31.0",
)
def long_threshold(deployment: ServingDeployment) -> Iterable[RuleResult]:
    key = "long-prefill-token-threshold"
    for worker in _of(deployment, Engine.VLLM):
        tokens, context = positive_int(worker.get(key)), worker.count("context_length")
        if tokens and context and tokens > context:
            yield RuleResult(
                location=worker.config(key),
                message=f"{key} {tokens:,} is above max-model-len {context:,}",
                fix=Fix(text="at most the context length", config={key: context}),
            )


@rule(
    id="PS223",
    title="a layout of experts that SGLang refuses",
    level=Level.ERROR,
    cause="The triton_kernel experts of gpt-oss know no expert parallelism; two-batch overlap "
    "needs an all-to-all backend or attention DP.",
    effect="An assertion or an error at the start.",
    remedy="ep-size 1; moe-a2a-backend, or no overlap.",
    source="sglang/srt/arg_groups/model_hook.py, validation_hook.py 0.5.21",
)
def sglang_layouts(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.SGLANG):
        is_gpt_oss = deployment.model is not None and deployment.model.is_gpt_oss
        if is_gpt_oss and worker.get("moe-runner-backend") == "triton_kernel" and worker.ep > 1:
            spans = worker.get("moe-a2a-backend") in EP_SPANNING
            config: dict[str, Any] = {"moe-a2a-backend": "none"} if spans else {}
            if (positive_int(worker.get("ep-size")) or 1) > 1:
                config["ep-size"] = 1
            yield RuleResult(
                location=worker.config("moe-runner-backend"),
                message=f"moe-runner-backend triton_kernel with expert parallelism {worker.ep}",
                fix=Fix(text="experts by tensor parallelism alone", config=config),
            )
        has_backend = worker.get("moe-a2a-backend") not in (None, "none")
        if worker.get(TBO) is True and not has_backend and not worker.has_attention_dp:
            yield RuleResult(
                location=worker.config(TBO),
                message=f"{TBO} with neither moe-a2a-backend nor enable-dp-attention",
                fix=Fix(text="leave it out", config={TBO: False}),
            )
