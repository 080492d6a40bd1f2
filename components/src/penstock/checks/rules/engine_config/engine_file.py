"""Rules about TensorRT-LLM's engine file and the flags that override it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.llm_args.history import ADDED, DEPRECATED, IGNORED, AddedKey
from penstock.engines.llm_args.surely_valid import is_surely_valid
from penstock.engines.llm_args.unsupported import Kind, UnsupportedSetting
from penstock.engines.setting_names import TRTLLM_FLAGS
from penstock.engines.settings import REPLACED, overrides
from penstock.manifests.deployment import KnownConfig, UnknownConfig
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import DEPLOYED_RELEASE, shown
from penstock.serving.worker import Worker

# The first TensorRT-LLM whose keys and values were read completely.
FIRST_READ = "1.3.0rc22"
TRTLLM_FILE = Versions(every="TensorRT-LLM has refused unknown keys, types and ranges since 1.0")
LLM_ARGS = "TensorRT-LLM llm_args.py and API reference of 1.3.0rc27 and rc29"
# Keys without effect in a Dynamo worker (dynamo/trtllm/workers/llm_worker.py 1.6.1), and why.
WITHOUT_EFFECT = {
    "num_postprocess_workers": "Dynamo removes it with a warning",
    "num_serve_frontends": "it is an option of trtllm-serve",
    "reasoning_parser": "it is an option of trtllm-serve; with Dynamo use --dyn-reasoning-parser",
}
# Values of --connector that Dynamo replaces by none, with a warning (dynamo/trtllm/args.py 1.6.1).
IGNORED_CONNECTORS = ("nixl", "lmcache", "null")
ATTENTION_BACKENDS = ("TRTLLM", "VANILLA", "FLASHINFER")


def engine_files(deployment: ServingDeployment) -> Iterator[tuple[Worker, Mapping[str, Any]]]:
    """Each TensorRT-LLM worker with the values of its engine file."""
    for worker in deployment.workers:
        config = worker.component.engine_config
        if worker.is_trtllm and isinstance(config, KnownConfig):
            yield worker, config.values


def _unsupported_settings(
    deployment: ServingDeployment, kind: Kind
) -> Iterator[tuple[Worker, UnsupportedSetting]]:
    for worker, values in engine_files(deployment):
        if is_surely_valid(values):
            continue
        from penstock.engines.llm_args.validate import validate  # it imports pydantic

        for setting in validate(values):
            if setting.kind is kind and str(setting.path[0]) not in WITHOUT_EFFECT:
                yield worker, setting


def _result(
    worker: Worker, setting: UnsupportedSetting, versions: Versions | None = None
) -> Iterator[RuleResult]:
    """The result as an error in ``versions`` (None: those of the rule). A key or value that
    resembles no known one may exist in an older TensorRT-LLM than those whose keys were read, so
    for these it is a warning."""
    result = RuleResult(
        location=worker.location("config", *setting.path),
        message=setting.message,
        fix=Fix(text=setting.fix, config=setting.config, replaces=setting.replaces),
        versions=versions,
    )
    if not setting.is_of_others:
        yield result
        return
    yield replace(result, versions=Versions(trtllm=f">={FIRST_READ}"))
    message = f"{setting.message} (compared with TensorRT-LLM {FIRST_READ})"
    earlier = Versions(trtllm=f"<{FIRST_READ}")
    yield replace(result, message=message, versions=earlier, level=Level.WARNING)


def unknown_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, setting in _unsupported_settings(deployment, Kind.UNKNOWN):
        added = ADDED.get(".".join(map(str, setting.path)))
        is_coming = added is not None and added.dynamo > DEPLOYED_RELEASE
        yield from _result(worker, setting, _before(added) if added and is_coming else None)
    yield from _too_new(deployment)


def _before(added: AddedKey) -> Versions:
    """The releases that lack a key."""
    return Versions(dynamo=f">=1.0,<{shown(added.dynamo)}")


def _too_new(deployment: ServingDeployment) -> Iterator[RuleResult]:
    """Keys of the current TensorRT-LLM that an older image does not have."""
    for worker, _ in engine_files(deployment):
        for key, added in ADDED.items():
            location = worker.config_location(key)
            is_set = worker.settings.get(key) is not None and location.what == "config"
            if added.dynamo <= DEPLOYED_RELEASE and is_set:
                dynamo = shown(added.dynamo)
                yield RuleResult(
                    location=location,
                    message=f"{key} requires TensorRT-LLM {added.since} (Dynamo {dynamo})",
                    fix=Fix(text=f"Remove {key}, or use an image of Dynamo {dynamo} or later."),
                    versions=_before(added),
                )


def invalid_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, setting in _unsupported_settings(deployment, Kind.VALUE):
        yield from _result(worker, setting)


def removed_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, setting in _unsupported_settings(deployment, Kind.REMOVED):
        yield from _result(worker, setting, Versions(dynamo=f">={shown(setting.dynamo)}"))


def deprecated_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in engine_files(deployment):
        for key, instead in DEPRECATED.items():
            if (
                setting := worker.settings.get(key)
            ) is not None and setting.location.what == "config":
                yield RuleResult(
                    location=setting.location, message=f"{key} is deprecated", fix=Fix(text=instead)
                )
        for key, value in IGNORED:
            if worker.get(key) == value:
                fix = Fix(text=f"Remove {key}.", config={key: None})
                yield RuleResult(
                    location=worker.config_location(key),
                    message=f"{key} {value} is ignored",
                    fix=fix,
                )
        if worker.get("speculative_config.decoding_type") == "Eagle":
            yield RuleResult(
                location=worker.config_location("speculative_config.decoding_type"),
                message="decoding_type Eagle is deprecated on the PyTorch backend",
                fix=Fix(
                    text="Set decoding_type to Eagle3.",
                    config={"speculative_config.decoding_type": "Eagle3"},
                ),
            )


def key_without_effect(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        yield from _ignored_connector(worker)
    for worker, values in engine_files(deployment):
        for key, why in WITHOUT_EFFECT.items():
            if key in values:
                message = f"{key} has no effect: {why}"
                yield RuleResult(
                    location=worker.location("config", key),
                    message=message,
                    fix=Fix(text=f"Remove {key}."),
                )
        yield from _replaced_values(worker)
        flag = worker.flag("--model")
        engine_model = values.get("model")
        registered = flag.text if flag else worker.env("DYN_TRTLLM_MODEL")
        if engine_model and registered and engine_model != registered:
            yield RuleResult(
                location=worker.location("config", "model"),
                message=f"the engine loads {engine_model}, but Dynamo registers {registered} "
                "(--model)",
                fix=Fix(text="Remove model from the engine file and set it with --model only."),
            )


def _ignored_connector(worker: Worker) -> Iterator[RuleResult]:
    flag, variable = worker.flag("--connector"), worker.env("DYN_CONNECTOR")
    name = (flag.text if flag else variable) or ""
    if worker.is_trtllm and name in IGNORED_CONNECTORS:
        what, place = ("args", flag.spelling) if flag else ("env", "DYN_CONNECTOR")
        yield RuleResult(
            location=worker.location(what, place),
            message=f"{place} {name} has no effect on a TensorRT-LLM worker",
            fix=Fix(text=f"Remove {place}, and set cache_transceiver_config.backend."),
        )


def _replaced_values(worker: Worker) -> Iterator[RuleResult]:
    """Values that TensorRT-LLM accepts and does not use."""
    attention = worker.get("attn_backend")
    if isinstance(attention, str) and attention.upper() not in ATTENTION_BACKENDS:
        yield RuleResult(
            location=worker.config_location("attn_backend"),
            message=f"attn_backend {attention} is unknown, and TensorRT-LLM uses TRTLLM instead",
            fix=Fix(text="Set attn_backend to TRTLLM.", config={"attn_backend": "TRTLLM"}),
        )
    speculation = worker.get("speculative_config")
    if isinstance(speculation, Mapping) and speculation.get("dynamic_tree_max_topK"):
        if speculation.get("use_dynamic_tree") in (None, False):
            key = "speculative_config.dynamic_tree_max_topK"
            yield RuleResult(
                location=worker.config_location(key),
                message=f"{key} has no effect because use_dynamic_tree is not true",
                fix=Fix(text=f"Set use_dynamic_tree to true, or remove {key}."),
            )


def override_discards_settings(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, values in engine_files(deployment):
        for location, override in overrides(worker.name, worker.settings.flags, worker.launch.env):
            for key in REPLACED:
                replacement, section = override.get(key), values.get(key)
                if key not in override or not isinstance(section, Mapping):
                    continue
                names = [
                    k
                    for k in section
                    if not isinstance(replacement, Mapping) or k not in replacement
                ]
                if names:
                    yield RuleResult(
                        location=location,
                        message=f"{location.path[0]} replaces {key} of the engine file and "
                        f"discards {', '.join(f'{k}: {section[k]}' for k in names)}",
                        fix=Fix(text="Move the override into the engine file and remove it here."),
                    )


def two_overrides(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        dynamic = [g for g in worker.settings.flags if g.spelling.startswith("--trtllm.")]
        if worker.is_trtllm and dynamic and worker.flag("--override-engine-args"):
            yield RuleResult(
                location=worker.location("args", dynamic[0].spelling),
                message=f"{dynamic[0].spelling} cannot be combined with --override-engine-args",
                fix=Fix(text="Move both overrides into the engine file."),
            )


def flag_overridden_by_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """The model is skipped: PS105 reports it."""
    for worker, values in engine_files(deployment):
        for given in worker.settings.flags:
            if given.flag is not None and given.flag.name == "model":
                continue
            key = TRTLLM_FLAGS.get(given.flag.name, "") if given.flag else ""
            section, _, inner = key.partition(".")
            value = values.get(section)
            value = value.get(inner) if inner and isinstance(value, Mapping) else value
            if value is not None and str(value).lower() != str(given.value).lower():
                yield RuleResult(
                    location=worker.location("args", given.spelling),
                    message=f"{given.spelling} {given.text or ''}".rstrip() + " has no effect: "
                    f"the engine file sets {key} to {value}, which takes precedence",
                    fix=Fix(text=f"Remove {given.spelling}, or {key} from the engine file."),
                )


def unreadable_engine_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        config = worker.component.engine_config
        if isinstance(config, UnknownConfig):
            yield RuleResult(
                location=worker.location("field", "main"),
                message=f"{config.path} is not checked: {config.reason}",
                fix=Fix(text=f"Put {config.path} into a ConfigMap of the same manifest."),
            )
