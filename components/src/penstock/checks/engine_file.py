"""Rules of TensorRT-LLM's own configuration file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Found, Level
from penstock.checks.rule import Rule
from penstock.checks.subject import Subject, Worker
from penstock.checks.versions import dynamo_version
from penstock.engines.llm_args.history import DEPRECATED, IN_DYNAMO
from penstock.engines.llm_args.judge import Kind, Refusal, judge
from penstock.engines.settings import OVERRIDE
from penstock.manifests.deployment import KnownConfig, UnknownConfig

LLM_ARGS = "TensorRT-LLM llm_args.py and API reference of 1.3.0rc27 and rc29"
# Keys that Dynamo sets or takes out itself (dynamo/trtllm/workers/llm_worker.py 1.6.1).
DYNAMOS = {
    "model": "Dynamo sets it from --model",
    "num_postprocess_workers": "Dynamo takes it out with a warning",
    "kv_connector_config": "Dynamo sets it from --connector",
    "sleep_config": "Dynamo sets it for GMS and snapshots",
    "num_serve_frontends": "it is trtllm-serve's",
    "reasoning_parser": "it is trtllm-serve's; with Dynamo: --dyn-reasoning-parser",
}
# Objects by the time the override comes, so that it replaces them whole (`deep_update`).
REPLACED = ("kv_cache_config", "moe_config", "attention_dp_config", "nvfp4_gemm_config")


def files(subject: Subject) -> Iterator[tuple[Worker, Mapping[str, Any]]]:
    """Each TensorRT-LLM worker with what its file says."""
    for worker in subject.workers:
        config = worker.component.engine_config
        if worker.is_trtllm and isinstance(config, KnownConfig):
            yield worker, config.values


def _refusals(subject: Subject, kind: Kind) -> Iterator[tuple[Worker, Refusal]]:
    for worker, values in files(subject):
        for refusal in judge(values):
            if refusal.kind is kind and str(refusal.path[0]) not in DYNAMOS:
                yield worker, refusal


def _found(worker: Worker, refusal: Refusal) -> Found:
    """An error for the image's version; where the image is older than the refusal, a note."""
    version = dynamo_version(worker.pod)
    level, since = None, ""
    if version is not None and version < refusal.dynamo:
        level, since = Level.NOTE, f" (from Dynamo {'.'.join(map(str, refusal.dynamo))} on)"
    elif version is not None and version < max(IN_DYNAMO) and refusal.kind is Kind.UNKNOWN:
        level, since = Level.WARNING, " (as of Dynamo 1.6; this image is older)"
    at = worker.at("config", *refusal.path)
    return Found(at=at, message=refusal.message + since, fix=Fix(words=refusal.fix), level=level)


def unknown_key(subject: Subject) -> Iterable[Found]:
    return (_found(w, r) for w, r in _refusals(subject, Kind.UNKNOWN))


def wrong_value(subject: Subject) -> Iterable[Found]:
    return (_found(w, r) for w, r in _refusals(subject, Kind.VALUE))


def gone_key(subject: Subject) -> Iterable[Found]:
    return (_found(w, r) for w, r in _refusals(subject, Kind.GONE))


def deprecated_key(subject: Subject) -> Iterable[Found]:
    for worker, _ in files(subject):
        for key, instead in DEPRECATED.items():
            if (setting := worker.settings.get(key)) is not None and setting.at.what == "config":
                yield Found(at=setting.at, message=f"{key} is deprecated", fix=Fix(words=instead))
        if worker.get("speculative_config.decoding_type") == "Eagle":
            yield Found(
                at=worker.config("speculative_config.decoding_type"),
                message="decoding_type Eagle is deprecated on the PyTorch backend",
                fix=Fix(
                    words="write Eagle3", config={"speculative_config.decoding_type": "Eagle3"}
                ),
            )


def key_without_effect(subject: Subject) -> Iterable[Found]:
    for worker, values in files(subject):
        for key, why in DYNAMOS.items():
            if key in values:
                message = f"{key} has no effect here: {why}"
                yield Found(
                    at=worker.at("config", key), message=message, fix=Fix(words="remove it")
                )


def override_replaces(subject: Subject) -> Iterable[Found]:
    for worker, values in files(subject):
        for given in worker.settings.flags:
            if given.flag is None or given.flag.name != OVERRIDE:
                continue
            for key in REPLACED:
                above = given.text or ""
                lost = values.get(key)
                if f'"{key}"' not in above or not isinstance(lost, Mapping):
                    continue
                names = [k for k in lost if f'"{k}"' not in above]
                if names:
                    yield Found(
                        at=worker.at("args", given.spelling),
                        message=f"--override-engine-args replaces the whole {key} of the file and "
                        f"loses {', '.join(f'{k}: {lost[k]}' for k in names)}",
                        fix=Fix(words="move the override into the file, and remove the flag"),
                    )


def file_outvotes_flag(subject: Subject) -> Iterable[Found]:
    for worker, values in files(subject):
        for given in worker.settings.flags:
            name = given.flag.name if given.flag else ""
            key = {"max-num-tokens": "max_num_tokens", "max-batch-size": "max_batch_size"}.get(name)
            key = key or {"max-seq-len": "max_seq_len"}.get(name)
            key = key or {"tensor-parallel-size": "tensor_parallel_size"}.get(name)
            if key and key in values and values[key] != given.value:
                yield Found(
                    at=worker.at("args", given.spelling),
                    message=f"{given.spelling} {given.text} has no effect: "
                    f"the file says {key}: {values[key]}, and the file wins",
                    fix=Fix(words=f"remove the flag, or {key} from the file"),
                )


def unread_file(subject: Subject) -> Iterable[Found]:
    for worker in subject.workers:
        config = worker.component.engine_config
        if isinstance(config, UnknownConfig):
            yield Found(
                at=worker.at("field", "main"),
                message=f"{config.path} is not checked: {config.reason}",
                fix=Fix(words="put the file into a ConfigMap beside the deployment"),
            )


RULES = (
    Rule(
        id="PS101",
        title="unknown key in TensorRT-LLM's file",
        level=Level.ERROR,
        cause="TensorRT-LLM forbids keys that it does not know, at every depth.",
        effect="The worker ends at its start with a pydantic error, after the image was pulled.",
        remedy="Use the nearest name, or remove the key.",
        source=LLM_ARGS,
        judge=unknown_key,
    ),
    Rule(
        id="PS102",
        title="wrong type or value in TensorRT-LLM's file",
        level=Level.ERROR,
        cause="The value is not one that the key takes: another type, another word, out of range.",
        effect="The worker ends at its start with a pydantic error.",
        remedy="Write one of the values that the finding lists.",
        source=LLM_ARGS,
        judge=wrong_value,
    ),
    Rule(
        id="PS103",
        title="key or value that TensorRT-LLM no longer has",
        level=Level.ERROR,
        cause="The key was renamed or removed in an earlier TensorRT-LLM; published files and "
        "generators still write it.",
        effect="The worker ends at its start; with an image older than the change, at the next "
        "upgrade.",
        remedy="Use the key that took its place.",
        source="TensorRT-LLM#4603, #5014, #17119; dynamo#2217, dynamo#2278; AISimulate's generator "
        "writes WIDEEP",
        judge=gone_key,
    ),
    Rule(
        id="PS104",
        title="deprecated key in TensorRT-LLM's file",
        level=Level.WARNING,
        cause="The key is still accepted and will go.",
        effect="An upgrade of the image will refuse the file.",
        remedy="Use what the finding names.",
        source=LLM_ARGS,
        judge=deprecated_key,
    ),
    Rule(
        id="PS105",
        title="key that Dynamo does not pass on",
        level=Level.WARNING,
        cause="Dynamo sets the key itself or takes it out; some are options of trtllm-serve.",
        effect="What the file says does not happen, and nothing fails.",
        remedy="Remove it.",
        source="dynamo/trtllm/workers/llm_worker.py of ai-dynamo 1.6.1",
        judge=key_without_effect,
    ),
    Rule(
        id="PS106",
        title="an override that loses settings",
        level=Level.ERROR,
        cause="--override-engine-args merges maps, but kv_cache_config and some others are objects "
        "by then, which it replaces.",
        effect="fp8 KV, memory fraction or block reuse are silently back at their defaults.",
        remedy="Put everything into the one file.",
        source="dynamo/trtllm/utils/trtllm_utils.py of ai-dynamo 1.6.1 (deep_update)",
        judge=override_replaces,
    ),
    Rule(
        id="PS107",
        title="a flag that the file outvotes",
        level=Level.WARNING,
        cause="The engine's file wins over the command line.",
        effect="The number on the command line is not the one that runs.",
        remedy="Say it once.",
        source="update_llm_args_with_extra_dict in TensorRT-LLM llm_args.py",
        judge=file_outvotes_flag,
    ),
    Rule(
        id="PS108",
        title="engine configuration that cannot be read here",
        level=Level.NOTE,
        cause="The file lies in the image or on a volume.",
        effect="Nothing that it says is checked; what is not said elsewhere is taken as default.",
        remedy="Put it into a ConfigMap of the same manifest.",
        source="penstock",
        judge=unread_file,
    ),
)
