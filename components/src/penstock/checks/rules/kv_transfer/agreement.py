"""Rules about settings that must be the same on prefill and decode workers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.transfer import TRANSCEIVER
from penstock.checks.version_range import Versions
from penstock.engines.setting_names import (
    COMMON_SETTINGS,
    LLAMACPP_KV_TRANSFER,
    LLAMACPP_KV_TRANSFER_DEFAULT,
)
from penstock.manifests.deployment import Engine
from penstock.memory.remedy import lacks_fp8_kv
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version
from penstock.serving.worker import Worker

# Backends that TRTLLM_USE_*_KVCACHE=1 selects for DEFAULT, in order of precedence.
BY_VARIABLE = ("NIXL", "UCX", "MOONCAKE", "MPI")
# Of speculative-config (nixl/metadata.py 0.31.0).
DRAFT_DETAILS = ("revision", "code_revision", "parallel_drafting", "kv_cache_dtype")
# Since 0.12, vLLM's NIXL connector converts between block sizes. Before, an assertion fails
# (`assert self.block_size == remote_block_size` in nixl_connector.py of 0.11.0).
CONVERTED, NOT_CONVERTED = Versions(vllm=">=0.12"), Versions(vllm="<0.12")
# Images before Dynamo 0.8 set TRTLLM_USE_UCX_KVCACHE, which decides for DEFAULT.
NIXL_SINCE = (0, 8)
SPELLINGS_COUNT = (Engine.VLLM, Engine.SGLANG)
# Second names: one class in nixl/connector.py of vLLM 0.31.0, one backend in SGLang.
SAME_BACKEND = {"NixlPullConnector": "NixlConnector", "mooncake_tcp": "mooncake"}


def effective_backend(worker: Worker) -> tuple[str, str | None]:
    """The key that names the backend, and the backend in effect."""
    key = {
        Engine.TRTLLM: f"{TRANSCEIVER}.backend",
        Engine.VLLM: "kv-transfer-config.kv_connector",
        Engine.SGLANG: "disaggregation-transfer-backend",
        Engine.LLAMACPP: LLAMACPP_KV_TRANSFER,
    }.get(worker.engine)
    backend = worker.get(key) if key else None
    if backend == "DEFAULT" and worker.is_trtllm:
        names = (n for n in BY_VARIABLE if worker.env(f"TRTLLM_USE_{n}_KVCACHE") == "1")
        is_old = (dynamo_version(worker.pod) or NIXL_SINCE) < NIXL_SINCE
        return str(key), next(names, "UCX" if is_old else "NIXL")
    if backend is None and worker.engine is Engine.SGLANG and worker.settings.is_complete:
        return str(key), "mooncake"
    if backend is None and worker.engine is Engine.LLAMACPP and worker.settings.is_complete:
        return str(key), LLAMACPP_KV_TRANSFER_DEFAULT
    return key or "", None if backend is None else str(backend)


def different_backends(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        (key, first), (_, second) = effective_backend(prefill), effective_backend(decode)
        composed = {"PdConnector", "MultiConnector"} & {str(first), str(second)}
        is_same = _family(first) == _family(second)
        if first and second and not is_same and not composed:
            yield RuleResult(
                location=decode.config_location(key),
                message=f"{decode.name} uses KV transfer backend {second}, but {prefill.name} "
                f"uses {first}",
                fix=Fix(text=f"Set the backend to {first} on both pools.", config={key: first}),
            )


def _family(backend: str | None) -> str | None:
    return SAME_BACKEND.get(backend or "", backend)


def _different_settings(
    deployment: ServingDeployment,
    word: str,
    what: str,
    *,
    normalize: Any = lambda value: value,
    avoid: Container[str] = (),
) -> Iterator[RuleResult]:
    """``normalize`` maps the spellings of a value to one; a fix never proposes one of ``avoid``."""
    for prefill, decode in deployment.pairs:
        if not (prefill.settings.is_complete and decode.settings.is_complete):
            continue
        first, second = prefill.value(word), decode.value(word)
        if normalize(first) != normalize(second):
            target, other = (decode, first) if first is not None else (prefill, second)
            if other in avoid:
                target, other = (prefill, second) if target is decode else (decode, first)
                other = "auto" if other is None else other
            yield RuleResult(
                location=target.settings.location(word),
                message=f"{decode.name} has {what} {_shown(second)}, but {prefill.name} has "
                f"{_shown(first)}",
                fix=Fix(
                    text=f"Set {COMMON_SETTINGS[word][target.engine]} to {other} on both pools.",
                    config={COMMON_SETTINGS[word][target.engine]: other},
                ),
                level=None if None not in (normalize(first), normalize(second)) else Level.WARNING,
            )


def _shown(value: Any) -> str:
    return "the engine's default" if value is None else str(value)


def different_block_sizes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for result in _different_settings(deployment, "block_size", "a KV block size of"):
        engine = deployment.component(result.location.component).engine
        if any(_is_no_count(worker) for pair in deployment.pairs for worker in pair):
            continue  # PS102 and PS143 report it
        if engine is not Engine.VLLM:
            yield result
            continue
        yield replace(result, versions=NOT_CONVERTED)
        if not all(_converts(*pair) for pair in deployment.pairs):
            yield replace(result, level=Level.WARNING, versions=CONVERTED)


def _is_no_count(worker: Worker) -> bool:
    return worker.value("block_size") is not None and worker.count("block_size") is None


def _converts(prefill: Worker, decode: Worker) -> bool:
    """Whether vLLM's decode workers read whole prefill blocks: `block_size_ratio` in
    kv_connector/utils.py, and nixl/base_worker.py of 0.31.0, which needs enough decode ranks."""
    first, second = prefill.count("block_size"), decode.count("block_size")
    if not first or not second:
        return False
    return first == second or (second % first == 0 and decode.tp >= prefill.tp)


def different_kv_types(deployment: ServingDeployment) -> Iterable[RuleResult]:
    lacks = any(
        lacks_fp8_kv(w.engine, deployment.gpu, deployment.model) for w in deployment.workers
    )
    avoid = ("fp8", "fp8_e4m3") if lacks else ()
    yield from _different_settings(
        deployment, "kv_dtype", "KV cache type", normalize=_dtype, avoid=avoid
    )
    for prefill, decode in deployment.pairs:
        first, second = prefill.value("kv_dtype"), decode.value("kv_dtype")
        # vLLM's NIXL handshake and SGLang's compare the strings as written (nixl/metadata.py
        # 0.31.0; disaggregation/common/conn.py 0.5.21).
        is_spelled_alike = (first or "auto") == (second or "auto")
        is_same = _dtype(first) == _dtype(second) and not is_spelled_alike
        if decode.engine in SPELLINGS_COUNT and is_same:
            yield RuleResult(
                location=decode.settings.location("kv_dtype"),
                message=f"{decode.name} spells its KV cache type {_shown(second)}, but "
                f"{prefill.name} spells it {_shown(first)}; the handshake treats them as "
                "different",
                fix=Fix(
                    text=f"Set kv-cache-dtype to {first or second} on both pools.",
                    config={"kv-cache-dtype": first or second},
                ),
            )


def _dtype(value: Any) -> str:
    """The canonical name of a type."""
    text = str(value or "auto").lower()
    return {"fp8_e4m3": "fp8", "bf16": "bfloat16"}.get(text, text)


def different_speculation(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        if not (prefill.settings.is_complete and decode.settings.is_complete):
            continue
        yield from _different_draft_details(prefill, decode)
        first, second = prefill.value("speculation"), decode.value("speculation")
        if bool(first) != bool(second) or (first and _draft(first) != _draft(second)):
            kinds = f"{_draft(first)} {_draft(second)}".lower()
            if not any(kind in kinds for kind in ("eagle", "mtp", "nextn", "draft", "dspark")):
                continue  # n-gram drafting has no KV cache
            if decode.engine is Engine.SGLANG and second and not first and _uses_nixl(decode):
                continue  # NIXL transfers the target's layers (disaggregation/nixl 0.5.21)
            key = COMMON_SETTINGS["speculation"].get(decode.engine)
            if key:
                target, other = (decode, first) if first else (prefill, second)
                yield RuleResult(
                    location=target.settings.location("speculation"),
                    message=f"{decode.name} uses {_draft(second) or 'no speculative decoding'}, "
                    f"but {prefill.name} uses "
                    f"{_draft(first) or 'no speculative decoding'}",
                    fix=Fix(
                        text=f"Set {key} to the same value on both pools.",
                        config={key: other},
                    ),
                    level=_speculation_level(decode.engine, kinds),
                )


def _different_draft_details(prefill: Worker, decode: Worker) -> Iterator[RuleResult]:
    """What vLLM's NIXL handshake compares of equal draft models."""
    first, second = prefill.value("speculation"), decode.value("speculation")
    if decode.engine is not Engine.VLLM or _draft(first) != _draft(second):
        return
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        return
    is_hashed = "eagle" in _draft(first).lower() and "Nixl" in str(effective_backend(decode)[1])
    for name in DRAFT_DETAILS if is_hashed else ():
        values = first.get(name), second.get(name)
        # An unset type is that of the pool's own KV cache.
        is_known = name != "kv_cache_dtype" or None not in values
        if is_known and (values[0] or None) != (values[1] or None):
            key = f"speculative-config.{name}"
            yield RuleResult(
                location=decode.config_location(key),
                message=f"{decode.name} has {key} {_shown(values[1])}, but {prefill.name} has "
                f"{_shown(values[0])}",
                fix=Fix(text=f"Set {key} to the same value on both pools."),
                versions=Versions(vllm=">=0.31"),
            )


def _uses_nixl(worker: Worker) -> bool:
    return bool(worker.get("disaggregation-transfer-backend") == "nixl")


def _speculation_level(engine: Engine, kinds: str) -> Level:
    """Only vLLM with EAGLE was seen to crash; published recipes of SGLang draft on decode only."""
    if "eagle" not in kinds or engine is Engine.SGLANG:
        return Level.NOTE
    return Level.ERROR if engine is Engine.VLLM else Level.WARNING


def _draft(value: Any) -> str:
    if isinstance(value, Mapping):
        kind = value.get("decoding_type") or value.get("method") or "a draft model"
        model = value.get("speculative_model") or value.get("speculative_model_dir")
        return f"{kind} {model or value.get('model') or ''}".strip()
    return str(value) if value else ""
