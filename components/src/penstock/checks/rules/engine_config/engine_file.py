"""Rules of TensorRT-LLM's own configuration file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.versions.image_versions import CURRENT, as_of, dynamo_version, shown
from penstock.engines.llm_args.history import ADDED, DEPRECATED, IGNORED
from penstock.engines.llm_args.judge import Kind, Refusal, judge
from penstock.engines.settings import REPLACED, TRTLLM_FLAGS, overrides
from penstock.manifests.deployment import KnownConfig, UnknownConfig
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

LLM_ARGS = "TensorRT-LLM llm_args.py and API reference of 1.3.0rc27 and rc29"
# Keys that nothing reads in a Dynamo worker (dynamo/trtllm/workers/llm_worker.py 1.6.1).
DYNAMOS = {
    "num_postprocess_workers": "Dynamo takes it out with a warning",
    "num_serve_frontends": "it is trtllm-serve's",
    "reasoning_parser": "it is trtllm-serve's; with Dynamo: --dyn-reasoning-parser",
}


def files(deployment: ServingDeployment) -> Iterator[tuple[Worker, Mapping[str, Any]]]:
    """Each TensorRT-LLM worker with what its file says."""
    for worker in deployment.workers:
        config = worker.component.engine_config
        if worker.is_trtllm and isinstance(config, KnownConfig):
            yield worker, config.values


def _refusals(deployment: ServingDeployment, kind: Kind) -> Iterator[tuple[Worker, Refusal]]:
    for worker, values in files(deployment):
        for refusal in judge(values):
            if refusal.kind is kind and str(refusal.path[0]) not in DYNAMOS:
                yield worker, refusal


def _found(worker: Worker, refusal: Refusal) -> RuleResult:
    """An error for the image's version; where the image is older than the refusal, a note; for
    versions that penstock does not know key by key, a warning."""
    version = dynamo_version(worker.pod)
    level, since = None, ""
    if version is not None and version < refusal.dynamo:
        level, since = Level.NOTE, f" (from Dynamo {shown(refusal.dynamo)} on)"
    elif version is not None and (
        version > CURRENT or (version < CURRENT and refusal.kind is Kind.UNKNOWN)
    ):
        level, since = Level.WARNING, as_of(version)
    location = worker.location("config", *refusal.path)
    fix = Fix(text=refusal.fix, config=refusal.config, replaces=refusal.replaces)
    return RuleResult(location=location, message=refusal.message + since, fix=fix, level=level)


@rule(
    id="PS101",
    title="unknown key in TensorRT-LLM's file",
    level=Level.ERROR,
    cause="TensorRT-LLM forbids keys that it does not know, at every depth.",
    effect="The worker ends at its start with a pydantic error, after the image was pulled.",
    remedy="Use the nearest name, or remove the key.",
    source=LLM_ARGS,
)
def unknown_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, refusal in _refusals(deployment, Kind.UNKNOWN):
        added = ADDED.get(".".join(map(str, refusal.path)))
        version = dynamo_version(worker.pod)
        if added is None or version is None or version < added.dynamo:
            yield _found(worker, refusal)
    yield from _too_new(deployment)


def _too_new(deployment: ServingDeployment) -> Iterator[RuleResult]:
    """Keys that TensorRT-LLM has by now, and an older image's does not."""
    for worker, _ in files(deployment):
        version = dynamo_version(worker.pod)
        for key, added in ADDED.items():
            location = worker.config(key)
            is_set = worker.settings.get(key) is not None and location.what == "config"
            if version is not None and version < added.dynamo <= CURRENT and is_set:
                dynamo = shown(added.dynamo)
                yield RuleResult(
                    location=location,
                    message=f"{key} came with TensorRT-LLM {added.since}, and this image has "
                    f"Dynamo {shown(version)}",
                    fix=Fix(text=f"remove it, or use an image of Dynamo {dynamo} or later"),
                )


@rule(
    id="PS102",
    title="wrong type or value in TensorRT-LLM's file",
    level=Level.ERROR,
    cause="The value is not one that the key takes: another type, another word, out of range.",
    effect="The worker ends at its start with a pydantic error.",
    remedy="Write one of the values that the finding lists.",
    source=LLM_ARGS,
)
def wrong_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    return (_found(w, r) for w, r in _refusals(deployment, Kind.VALUE))


@rule(
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
)
def gone_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    return (_found(w, r) for w, r in _refusals(deployment, Kind.GONE))


@rule(
    id="PS104",
    title="deprecated key in TensorRT-LLM's file",
    level=Level.WARNING,
    cause="The key is still accepted and will go.",
    effect="An upgrade of the image will refuse the file.",
    remedy="Use what the finding names.",
    source=LLM_ARGS,
)
def deprecated_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in files(deployment):
        for key, instead in DEPRECATED.items():
            if (
                setting := worker.settings.get(key)
            ) is not None and setting.location.what == "config":
                yield RuleResult(
                    location=setting.location, message=f"{key} is deprecated", fix=Fix(text=instead)
                )
        for key, value in IGNORED:
            if worker.get(key) == value:
                fix = Fix(text="remove it", config={key: None})
                yield RuleResult(
                    location=worker.config(key), message=f"{key} {value} is ignored", fix=fix
                )
        if worker.get("speculative_config.decoding_type") == "Eagle":
            yield RuleResult(
                location=worker.config("speculative_config.decoding_type"),
                message="decoding_type Eagle is deprecated on the PyTorch backend",
                fix=Fix(text="write Eagle3", config={"speculative_config.decoding_type": "Eagle3"}),
            )


@rule(
    id="PS105",
    title="key that Dynamo does not pass on",
    level=Level.WARNING,
    cause="Dynamo takes the key out or never learns of it; some are options of trtllm-serve.",
    effect="What the file says does not happen, or not in Dynamo, and nothing fails.",
    remedy="Remove it.",
    source="dynamo/trtllm/workers/llm_worker.py of ai-dynamo 1.6.1",
)
def key_without_effect(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in files(deployment):
        for key, why in DYNAMOS.items():
            if key in values:
                message = f"{key} has no effect here: {why}"
                yield RuleResult(
                    location=worker.location("config", key),
                    message=message,
                    fix=Fix(text="remove it"),
                )
        flag = worker.flag("--model")
        named, given = values.get("model"), flag.text if flag else worker.env("DYN_TRTLLM_MODEL")
        if named and given and named != given:
            yield RuleResult(
                location=worker.location("config", "model"),
                message=f"the engine loads {named}, and Dynamo registers the --model {given}",
                fix=Fix(text="name the model on the command line alone"),
            )


@rule(
    id="PS106",
    title="an override that loses settings",
    level=Level.ERROR,
    cause="--override-engine-args and --trtllm.a.b merge maps, but kv_cache_config and some "
    "others are objects by then, which they replace.",
    effect="fp8 KV, memory fraction or block reuse are silently back at their defaults.",
    remedy="Put everything into the one file.",
    source="dynamo/trtllm/utils/trtllm_utils.py of ai-dynamo 1.6.1 (deep_update)",
)
def override_replaces(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in files(deployment):
        for location, override in overrides(worker.name, worker.settings.flags, worker.launch.env):
            for key in REPLACED:
                above, lost = override.get(key), values.get(key)
                if key not in override or not isinstance(lost, Mapping):
                    continue
                names = [k for k in lost if not isinstance(above, Mapping) or k not in above]
                if names:
                    yield RuleResult(
                        location=location,
                        message=f"{location.path[0]} replaces the whole {key} of the file and "
                        f"loses {', '.join(f'{k}: {lost[k]}' for k in names)}",
                        fix=Fix(text="move the override into the file, and remove it here"),
                    )


@rule(
    id="PS109",
    title="two kinds of override",
    level=Level.ERROR,
    cause="--override-engine-args and --trtllm.* exclude each other.",
    effect="The worker ends at its start.",
    remedy="Put both into the file.",
    source="dynamo#8659; dynamo/trtllm/args.py of 1.6.1",
)
def two_overrides(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        dynamic = [g for g in worker.settings.flags if g.spelling.startswith("--trtllm.")]
        if worker.is_trtllm and dynamic and worker.flag("--override-engine-args"):
            yield RuleResult(
                location=worker.location("args", dynamic[0].spelling),
                message=f"{dynamic[0].spelling} beside --override-engine-args",
                fix=Fix(text="move both into the file"),
            )


@rule(
    id="PS107",
    title="a flag that the file outvotes",
    level=Level.WARNING,
    cause="The engine's file wins over the command line.",
    effect="The number on the command line is not the one that runs.",
    remedy="Say it once.",
    source="update_llm_args_with_extra_dict in TensorRT-LLM llm_args.py",
)
def file_outvotes_flag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """PS105 says more about the model."""
    for worker, values in files(deployment):
        for given in worker.settings.flags:
            if given.flag is not None and given.flag.name == "model":
                continue
            key = TRTLLM_FLAGS.get(given.flag.name, "") if given.flag else ""
            section, _, inner = key.partition(".")
            said = values.get(section)
            said = said.get(inner) if inner and isinstance(said, Mapping) else said
            if said is not None and str(said).lower() != str(given.value).lower():
                yield RuleResult(
                    location=worker.location("args", given.spelling),
                    message=f"{given.spelling} {given.text or ''}".rstrip() + " has no effect: "
                    f"the file says {key}: {said}, and the file wins",
                    fix=Fix(text=f"remove the flag, or {key} from the file"),
                )


@rule(
    id="PS108",
    title="engine configuration that cannot be read here",
    level=Level.NOTE,
    cause="The file lies in the image or on a volume.",
    effect="Nothing that it says is checked; what is not said elsewhere is taken as default.",
    remedy="Put it into a ConfigMap of the same manifest.",
    source="penstock",
)
def unread_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        config = worker.component.engine_config
        if isinstance(config, UnknownConfig):
            yield RuleResult(
                location=worker.location("field", "main"),
                message=f"{config.path} is not checked: {config.reason}",
                fix=Fix(text="put the file into a ConfigMap beside the deployment"),
            )
