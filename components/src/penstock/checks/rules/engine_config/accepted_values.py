"""Values and keys that the engine of the image does not have, but other versions do."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checks.version_range import Versions
from penstock.engines.value_history import Refusal, known_values, refusals
from penstock.manifests.deployment import Engine
from penstock.serving.versions import TITLES
from penstock.serving.worker import Worker
from penstock.text.names import nearest

SIMILARITY = 0.75  # minimum similarity of a suggestion
ENGINES = (Engine.VLLM, Engine.SGLANG)
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
    """The versions of the engine that refuse a value."""
    if engine is Engine.VLLM:
        return Versions(vllm=refusal.specifier)
    return Versions(sglang=refusal.specifier)


def since(engine: Engine, refusal: Refusal) -> str:
    """` before vLLM 0.23.0`, or ` since vLLM 0.16.0`."""
    if refusal.added_in:
        return f" before {TITLES[engine]} {refusal.added_in}"
    return f" since {TITLES[engine]} {refusal.first}"


def requested_choice(worker: Worker, name: str) -> str:
    """The value of a flag, in upper or lower case if the engine folds it; empty if it is unset."""
    text = worker.get(name)
    if not isinstance(text, str):
        return ""
    if name in LOOKED_UP[worker.engine]:
        return text.lower() if worker.engine is Engine.VLLM else text.upper()
    return text.upper() if name in FOLDED else text


def refused_choices(worker: Worker, name: str) -> tuple[Refusal, ...]:
    """The versions that refuse the value of a flag, which other versions accept."""
    if name in REGISTERED_BY_PLUGINS:
        return ()
    return tuple(refusals(worker.engine, "choices", name, requested_choice(worker, name)))


def accepted_choice(worker: Worker, name: str, refusal: Refusal) -> str:
    """What the refusing versions accept instead, if it resembles the value; else empty."""
    return nearest(requested_choice(worker, name), refusal.accepted, SIMILARITY)


def similar_choice(worker: Worker, name: str) -> str:
    """What the value of a flag resembles, if no version has it; else empty."""
    known = known_values(worker.engine, "choices", name)
    requested = requested_choice(worker, name)
    return "" if requested in known else nearest(requested, known, SIMILARITY)
