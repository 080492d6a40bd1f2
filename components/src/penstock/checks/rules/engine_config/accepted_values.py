"""Rules about values and keys that the engine of the image does not have, but other versions do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.value_history import Refusal, known_values, names, refusals
from penstock.manifests.deployment import Engine
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

SIMILARITY = 0.75  # minimum similarity of a suggestion
ENGINES = (Engine.VLLM, Engine.SGLANG)
OWN_VERSIONS = Versions(every="each finding is about the versions that refuse its value")
SOURCE = "engines/data/value_history.json, made of the sources of "
# Values that vLLM's parsers accept under another name (`_parse…` of the configuration classes).
FOLDED = ("attention-backend", "speculative-config.attention_backend")
# Names that the engine looks up after its parser, which takes any text. A plugin may register more
# of them, so that an unknown one is reported only if it resembles a known one.
LOOKED_UP: Mapping[Engine, tuple[str, ...]] = {
    Engine.VLLM: ("quantization", "load-format", "tokenizer-mode", "data-parallel-backend"),
    Engine.SGLANG: ("speculative-algorithm",),
}
# Dynamo's images have plugins with load formats that later versions of vLLM have themselves.
REGISTERED_BY_PLUGINS = ("load-format",)
# What replaced a key that is gone.
INSTEAD: Mapping[str, str] = {
    "encoder_cudagraph_max_images_per_batch": "encoder_cudagraph_max_vision_items_per_batch",
    "compile_ranges_split_points": "compile_ranges_endpoints",
    "level": "mode",
    "use_fp4_indexer_cache": "indexer_kv_dtype: mxfp4",
    "synthetic_acceptance_rate": "synthetic_acceptance_rates",
}


def versions_of(engine: Engine, refusal: Refusal) -> Versions:
    if engine is Engine.VLLM:
        return Versions(vllm=refusal.specifier)
    return Versions(sglang=refusal.specifier)


def since(engine: Engine, refusal: Refusal) -> str:
    """` before vLLM 0.23.0`, or ` since vLLM 0.16.0`."""
    name = "vLLM" if engine is Engine.VLLM else "SGLang"
    if refusal.added_in:
        return f" before {name} {refusal.added_in}"
    return f" since {name} {refusal.first}"


def value_of_other_versions(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine not in ENGINES:
            continue
        for name in names(worker.engine, "choices"):
            value = worker.get(name)
            if isinstance(value, str):
                yield from _refused(worker, name, value)


def _refused(worker: Worker, name: str, value: str) -> Iterator[RuleResult]:
    engine = worker.engine
    if name in LOOKED_UP[engine]:
        requested = value.lower() if engine is Engine.VLLM else value.upper()
        yield from _unknown_name(worker, name, requested)
    else:
        requested = value.upper() if name in FOLDED else value
    if name in REGISTERED_BY_PLUGINS:
        return
    for refusal in refusals(engine, "choices", name, requested):
        near = nearest(requested, refusal.accepted, SIMILARITY)
        other = f"Set {name} to another value, or use another image."
        yield RuleResult(
            location=worker.config_location(name),
            message=f"{name} has no value {value}{since(engine, refusal)}",
            fix=Fix(text=f"Set {name} to {near}." if near else other),
            versions=versions_of(engine, refusal),
        )


def _unknown_name(worker: Worker, name: str, value: str) -> Iterator[RuleResult]:
    """A name that no version has, if it resembles a known one."""
    known = known_values(worker.engine, "choices", name)
    near = "" if value in known else nearest(value, known, SIMILARITY)
    if near:
        yield RuleResult(
            location=worker.config_location(name),
            message=f"{name} has no value {value}",
            fix=Fix(text=f"Set {name} to {near}.", config={name: near}),
        )


def key_of_other_versions(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.VLLM:
            for section in names(Engine.VLLM, "sections"):
                values = worker.get(section)
                for key in values if isinstance(values, Mapping) else ():
                    yield from _unknown_key(worker, section, str(key))


def _unknown_key(worker: Worker, section: str, key: str) -> Iterator[RuleResult]:
    engine, name = Engine.VLLM, key.replace("-", "_")
    for refusal in refusals(engine, "sections", section, name):
        instead = INSTEAD.get(key, "") if refusal.removed_after else ""
        yield RuleResult(
            location=worker.config_location(f"{section}.{key}"),
            message=f"{section} has no key {key}{since(engine, refusal)}",
            fix=Fix(text=f"Use {instead}." if instead else f"Remove {key}."),
            versions=versions_of(engine, refusal),
        )
