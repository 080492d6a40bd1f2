"""Rules about limits of vLLM and SGLang: sections, CUDA graph sizes and parallel layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.engine_config.accepted_values import FOLDED
from penstock.checks.version_range import Versions
from penstock.engines.releases import DEPLOYED, RELEASES
from penstock.engines.sections import ALIASES, PASSES, SectionError, section_errors, sections
from penstock.engines.setting_names import PARTS
from penstock.engines.value_history import is_known, names
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import EP_SPANNING, Worker

DCP = "decode-context-parallel-size"
SIZES, LARGEST = "cudagraph-capture-sizes", "max-cudagraph-capture-size"
TBO = "enable-two-batch-overlap"
# Flags, and the section key that each is an alias of (vllm/engine/arg_utils.py 0.31.0).
ALIASES_OF_SECTION_KEYS: Mapping[str, tuple[str, ...]] = {
    SIZES: ("compilation-config", "cudagraph_capture_sizes"),
    LARGEST: ("compilation-config", "max_cudagraph_capture_size"),
    "attention-backend": ("attention-config", "backend"),
    "enable-flashinfer-autotune": ("kernel-config", "enable_flashinfer_autotune"),
    **{flag: tuple(key.split(".")) for flag, key in PARTS.items()},
}
KV_ROLE = ("kv-transfer-config", "kv_role")  # PS416 reports it
# Keys of a section that versions before those of engines/data/value_history.json had, and the first
# version without them (vllm/config of 0.10.1, 0.11.0, 0.12.0 and 0.14.1).
GONE_SINCE: Mapping[str, Mapping[str, str]] = {
    "compilation-config": dict.fromkeys(
        ("use_inductor", "use_cudagraph", "full_cuda_graph", "max_capture_size"), "0.12"
    ),
    "compilation-config.pass_config": {
        **dict.fromkeys(PASSES, "0.13"),
        "fi_allreduce_fusion_max_token_num": "0.12",
    },
    "speculative-config": dict.fromkeys(
        ("disable_logprobs", "enable_chunked_prefill", "disable_log_stats"), "0.12"
    ),
}


def _workers_of(deployment: ServingDeployment, engine: Engine) -> Iterable[Worker]:
    return (worker for worker in deployment.workers if worker.engine is engine)


def invalid_section(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _workers_of(deployment, Engine.VLLM):
        for flag in (*sections(), *ALIASES):
            for error in section_errors(flag, worker.get(flag)):
                key = ".".join((flag, *error.path))
                if (flag, *error.path) == KV_ROLE:
                    continue
                if _is_reported_elsewhere(error, key, worker.get(key)):
                    continue
                yield RuleResult(
                    location=worker.config_location(key),
                    message=f"{flag}: {error.message}"
                    if error.is_key
                    else f"{key} {error.message}",
                    fix=_fix(worker, flag, key, error),
                    versions=_versions(error, key, worker.get(key)),
                )


def _is_reported_elsewhere(error: SectionError, key: str, value: object) -> bool:
    """Whether another version accepts the key or value. PS163 or PS169 then reports it."""
    kind, table, given = _entry(error, key, value)
    return bool(kind) and is_known(Engine.VLLM, kind, table, given)


def _versions(error: SectionError, key: str, value: object) -> Versions | None:
    """The versions that refuse the key or value; None: every version does."""
    kind, table, given = _entry(error, key, value)
    if not kind:
        return None
    if table not in names(Engine.VLLM, kind):
        return Versions(vllm=f">={RELEASES[DEPLOYED].vllm}")
    first = GONE_SINCE.get(table, {}).get(given)
    return Versions(vllm=f">={first}") if first else None


def _entry(error: SectionError, key: str, value: object) -> tuple[str, str, str]:
    """Kind, name and value in engines/data/value_history.json; empty for a number out of bounds."""
    if error.is_key:
        section, _, name = key.rpartition(".")
        return "sections", section, name.replace("-", "_")
    given = str(value).upper() if key in FOLDED else str(value)
    return ("choices", key, given) if error.is_choice else ("", "", "")


def _fix(worker: Worker, flag: str, key: str, error: SectionError) -> Fix:
    if error.instead:
        return Fix(text=f"Use {error.instead}.")
    if not error.path and flag in sections():
        return Fix(text="Write a mapping of keys.")
    if not error.near:
        return Fix(text=f"Remove {key}." if error.is_key else f"Set {key} to an allowed value.")
    if not error.is_key:
        return Fix(text=f"Set {key} to {error.near}.", config={key: error.near})
    meant = ".".join((flag, *error.path[:-1], error.near))
    text = f"Rename {error.path[-1]} to {error.near}."
    at_flag = (
        worker.config_location(flag).what == "args"
    )  # its JSON is written again without the key
    config = {**({key: None} if at_flag else {}), meant: worker.get(key)}
    return Fix(text=text, config=config, replaces=key)


def replaced_section(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _workers_of(deployment, Engine.VLLM):
        for flag, before in worker.settings.replaced.items():
            remaining = worker.get(flag)
            if not isinstance(before.value, Mapping) or not isinstance(remaining, Mapping):
                continue
            lost = [key for key in before.value if str(key) not in remaining]
            if lost:
                part = worker.config_location(flag)
                yield RuleResult(
                    location=part,
                    message=f"{''.join(map(str, part.path))} replaces all of {flag} and "
                    f"discards {', '.join(map(str, lost))}",
                    fix=Fix(
                        text=f"Set the key in {flag} instead of {''.join(map(str, part.path))}."
                    ),
                )


def invalid_decode_context_parallelism(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _workers_of(deployment, Engine.VLLM):
        dcp, model = worker.dcp, deployment.model
        if dcp == 1:
            continue
        problem, since = "", ""
        transfers_kv = (
            worker.role is not Role.WORKER and worker.get("kv-transfer-config") is not None
        )
        if transfers_kv and model is not None and not model.is_mla:
            problem, since = "is supported with KV transfer only for MLA models", "0.31"
        elif transfers_kv and dcp != max(worker.tp, worker.cp):
            problem, since = f"must be 1 or {max(worker.tp, worker.cp)} with KV transfer", "0.31"
        elif worker.cp > 1:
            allowed, since = (worker.cp, worker.tp * worker.cp), "0.26"
            problem = "" if dcp in allowed else f"must be 1, {allowed[0]} or {allowed[1]}"
        elif worker.tp % dcp:
            problem = f"does not divide tensor-parallel-size {worker.tp}"
        elif model is not None and not model.is_mla:
            most = worker.tp // model.kv_heads
            if worker.tp <= model.kv_heads or dcp > most:
                problem = (
                    f"requires tensor-parallel-size of at least {dcp} × {model.kv_heads} KV heads"
                )
            elif model.heads // model.kv_heads % dcp:
                problem = f"does not divide {model.heads // model.kv_heads} query heads per KV head"
        if problem:
            yield RuleResult(
                location=worker.config_location(DCP),
                message=f"{DCP} {dcp} {problem}",
                fix=Fix(text=f"Set {DCP} to 1.", config={DCP: 1}),
                versions=Versions(vllm=f">={since}") if since else None,
            )


def contradicting_graph_sizes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _workers_of(deployment, Engine.VLLM):
        if not _captures_graphs(worker):
            continue
        sizes_key, sizes = _effective(worker, SIZES)
        largest_key, largest = _effective(worker, LARGEST)
        tokens = worker.count("max_batch_tokens")
        listed = sizes if isinstance(sizes, list) else [sizes]
        counts = [n for size in listed if (n := positive_int(size)) and not (tokens and n > tokens)]
        if counts and positive_int(largest) and max(counts) != positive_int(largest):
            yield RuleResult(
                location=worker.config_location(largest_key),
                message=f"{largest_key} is {largest}, but the largest of {sizes_key} is "
                f"{max(counts)}",
                fix=Fix(
                    text=f"Set {largest_key} to {max(counts)}.", config={largest_key: max(counts)}
                ),
            )


def configured_twice(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _workers_of(deployment, Engine.VLLM):
        for flag, (section, key) in ALIASES_OF_SECTION_KEYS.items():
            section_setting = worker.settings.values.get(section)
            in_section = worker.get(f"{section}.{key}")
            if flag in PARTS:  # these flags create the section if it is not set
                value = section_setting.value if section_setting else None
                in_section = value.get(key) if isinstance(value, Mapping) else None
            if worker.get(flag) is not None and in_section is not None:
                yield RuleResult(
                    location=worker.config_location(flag),
                    message=f"{flag} and {section}.{key} are both set",
                    fix=Fix(text=f"Keep {section}.{key} and remove {flag}."),
                )


def _captures_graphs(worker: Worker) -> bool:
    mode = str(worker.get("compilation-config.cudagraph_mode") or "").upper()
    level = worker.get("optimization-level")
    return worker.get("enforce-eager") is not True and mode != "NONE" and str(level) != "0"


def _effective(worker: Worker, flag: str) -> tuple[str, Any]:
    """(key, value) of a flag, or of the key in compilation-config that it is an alias of."""
    key = f"compilation-config.{flag.replace('-', '_')}"
    own = worker.get(flag)
    return (flag, own) if own is not None else (key, worker.get(key))


def long_threshold(deployment: ServingDeployment) -> Iterable[RuleResult]:
    key = "long-prefill-token-threshold"
    for worker in _workers_of(deployment, Engine.VLLM):
        tokens, context = positive_int(worker.get(key)), worker.count("context_length")
        if tokens and context and tokens > context:
            yield RuleResult(
                location=worker.config_location(key),
                message=f"{key} {tokens:,} is above max-model-len {context:,}",
                fix=Fix(text=f"Lower {key} to at most {context}.", config={key: context}),
            )


def unsupported_expert_layout(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _workers_of(deployment, Engine.SGLANG):
        is_gpt_oss = deployment.model is not None and deployment.model.is_gpt_oss
        if is_gpt_oss and worker.get("moe-runner-backend") == "triton_kernel" and worker.ep > 1:
            spans = worker.get("moe-a2a-backend") in EP_SPANNING
            config: dict[str, Any] = {"moe-a2a-backend": "none"} if spans else {}
            if (positive_int(worker.get("ep-size")) or 1) > 1:
                config["ep-size"] = 1
            yield RuleResult(
                location=worker.config_location("moe-runner-backend"),
                message="moe-runner-backend triton_kernel does not support expert parallelism "
                f"({worker.ep})",
                fix=Fix(text="Disable expert parallelism.", config=config),
            )
        if worker.get(TBO) is True and worker.get("moe-a2a-backend") in (None, "none"):
            yield from _overlap_without_backend(worker)


def _overlap_without_backend(worker: Worker) -> Iterable[RuleResult]:
    """Since 0.5.16 attention DP is enough."""
    since_dp = [] if worker.has_attention_dp else [" or enable-dp-attention"]
    for versions, other in ((">=0.5.8,<0.5.16", ""), *((">=0.5.16", o) for o in since_dp)):
        yield RuleResult(
            location=worker.config_location(TBO),
            message=f"{TBO} requires moe-a2a-backend{other}",
            fix=Fix(text=f"Set {TBO} to false.", config={TBO: False}),
            versions=Versions(sglang=versions),
        )
