"""Rules of what prefill and decode must have alike."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.kv_transfer.transfer import TRANSCEIVER
from penstock.engines.settings import WORDS
from penstock.manifests.deployment import Engine
from penstock.memory.remedy import lacks_fp8_kv
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# What DEFAULT becomes by TRTLLM_USE_*_KVCACHE=1, the first of them first.
BY_VARIABLE = ("NIXL", "UCX", "MOONCAKE", "MPI")


def _backend(worker: Worker) -> tuple[str, Any]:
    """The key that names the backend, and what it comes to."""
    key = {
        Engine.TRTLLM: f"{TRANSCEIVER}.backend",
        Engine.VLLM: "kv-transfer-config.kv_connector",
        Engine.SGLANG: "disaggregation-transfer-backend",
    }.get(worker.engine)
    said = worker.get(key) if key else None
    if said == "DEFAULT" and worker.is_trtllm:
        names = (n for n in BY_VARIABLE if worker.env(f"TRTLLM_USE_{n}_KVCACHE") == "1")
        return str(key), next(names, "NIXL")
    if said is None and worker.engine is Engine.SGLANG and worker.settings.is_whole:
        return str(key), "mooncake"
    return key or "", said


@rule(
    id="PS402",
    title="the pools move KV with different backends",
    level=Level.ERROR,
    cause="Both ends must speak the same backend or connector.",
    effect="No transfer succeeds.",
    remedy="Use one backend.",
    source="AISimulate generator rules; dynamo#10027",
)
def other_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        (key, first), (_, second) = _backend(prefill), _backend(decode)
        composed = {"PdConnector", "MultiConnector"} & {str(first), str(second)}
        if first and second and first != second and not composed:
            yield RuleResult(
                location=decode.config(key),
                message=f"{decode.name} moves KV with {second}, {prefill.name} with {first}",
                fix=Fix(text="use one", config={key: first}),
            )


def _differs(
    deployment: ServingDeployment,
    word: str,
    what: str,
    *,
    same: Any = lambda value: value,
    avoid: Container[str] = (),
) -> Iterator[RuleResult]:
    """``same`` makes one of different spellings; a fix takes no value of ``avoid``."""
    for prefill, decode in deployment.pairs:
        if not (prefill.settings.is_whole and decode.settings.is_whole):
            continue
        first, second = prefill.value(word), decode.value(word)
        if same(first) != same(second):
            lacks, other = (decode, first) if first is not None else (prefill, second)
            if other in avoid:
                lacks, other = (prefill, second) if lacks is decode else (decode, first)
                other = "auto" if other is None else other
            yield RuleResult(
                location=lacks.settings.location(word),
                message=f"{decode.name} has {what} {_said(second)}, {prefill.name} {_said(first)}",
                fix=Fix(text="use one on both pools", config={WORDS[word][lacks.engine]: other}),
                level=None if None not in (same(first), same(second)) else Level.WARNING,
            )


def _said(value: Any) -> str:
    return "the engine's own" if value is None else str(value)


@rule(
    id="PS413",
    title="KV blocks of different sizes",
    level=Level.ERROR,
    cause="Prefill and decode cut the KV cache into blocks of different lengths.",
    effect="Transfers are refused or land in the wrong place; the router counts wrong.",
    remedy="One block size.",
    source="dynamo#1232, dynamo#9545, dynamo#5015; vllm#42895, sglang#14474",
)
def other_block_size(deployment: ServingDeployment) -> Iterable[RuleResult]:
    return _differs(deployment, "block_size", "a block size of")


@rule(
    id="PS414",
    title="KV of different types",
    level=Level.ERROR,
    cause="One pool keeps fp8, the other another type.",
    effect="The handshake fails, or decode reads noise.",
    remedy="One type.",
    source="vllm#29503, sglang#19398; AISimulate generator rules",
)
def other_kv_dtype(deployment: ServingDeployment) -> Iterable[RuleResult]:
    lacks = any(
        lacks_fp8_kv(w.engine, deployment.gpu, deployment.model) for w in deployment.workers
    )
    avoid = ("fp8", "fp8_e4m3") if lacks else ()
    yield from _differs(deployment, "kv_dtype", "KV of type", same=_dtype, avoid=avoid)
    for prefill, decode in deployment.pairs:
        first, second = prefill.value("kv_dtype"), decode.value("kv_dtype")
        # vLLM's NIXL handshake compares the word as it is written (nixl/metadata.py 0.31.0).
        if decode.engine is Engine.VLLM and first != second and _dtype(first) == _dtype(second):
            yield RuleResult(
                location=decode.settings.location("kv_dtype"),
                message=f"{decode.name} calls its KV {_said(second)}, {prefill.name} "
                f"{_said(first)}: vLLM's handshake takes them for two types",
                fix=Fix(text="one spelling on both pools", config={"kv-cache-dtype": first}),
            )


def _dtype(value: Any) -> str:
    """One spelling of a type."""
    text = str(value or "auto").lower()
    return {"fp8_e4m3": "fp8", "bf16": "bfloat16"}.get(text, text)


@rule(
    id="PS415",
    title="speculation on one pool only",
    level=Level.ERROR,
    cause="A draft model adds a layer to the KV layout of the pool that has it.",
    effect="Decode crashes at the first transfer.",
    remedy="The same speculation on both pools, or on neither.",
    source="Dynamo 1.3.0 release notes; vllm#49230",
)
def other_speculation(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        if not (prefill.settings.is_whole and decode.settings.is_whole):
            continue
        first, second = prefill.value("speculation"), decode.value("speculation")
        if bool(first) != bool(second) or (first and _drafts(first) != _drafts(second)):
            kinds = f"{_drafts(first)} {_drafts(second)}".lower()
            if not any(word in kinds for word in ("eagle", "mtp", "nextn", "draft", "dspark")):
                continue  # n-grams keep no KV of their own
            key = WORDS["speculation"].get(decode.engine)
            if key:
                lacks, other = (decode, first) if first else (prefill, second)
                yield RuleResult(
                    location=lacks.settings.location("speculation"),
                    message=f"{decode.name} drafts with {_drafts(second) or 'nothing'}, "
                    f"{prefill.name} with {_drafts(first) or 'nothing'}",
                    fix=Fix(text="the same on both pools, or on neither", config={key: other}),
                    level=None if "eagle" in kinds else Level.WARNING,
                )


def _drafts(value: Any) -> str:
    if isinstance(value, Mapping):
        kind = value.get("decoding_type") or value.get("method") or "a draft model"
        model = value.get("speculative_model") or value.get("speculative_model_dir")
        return f"{kind} {model or value.get('model') or ''}".strip()
    return str(value) if value else ""
