"""What must be the same on prefill and decode workers: backend, block size, KV type, drafts, TP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.checks.rules.kv_transfer.transfer import TRANSCEIVER, is_on
from penstock.checks.rules.kv_transfer.vllm_connectors import (
    BACKEND_KEYS,
    OWN_SELECTION,
    connector_of,
    connectors_of,
    hma_flag,
)
from penstock.manifests.deployment import Engine, Role
from penstock.memory.remedy import lacks_fp8_kv
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version
from penstock.serving.worker import Worker

UNSET = "the engine's default"
# The key that names the backend.
TRANSFER_KEYS = {
    Engine.TRTLLM: f"{TRANSCEIVER}.backend",
    Engine.VLLM: "kv-transfer-config.kv_connector",
    Engine.SGLANG: "disaggregation-transfer-backend",
}
DEFAULT_BACKENDS = {Engine.SGLANG: "mooncake"}
# Backends that TRTLLM_USE_*_KVCACHE=1 selects for DEFAULT, in order of precedence.
BY_VARIABLE = ("NIXL", "UCX", "MOONCAKE", "MPI")
# Images before Dynamo 0.8 set TRTLLM_USE_UCX_KVCACHE, which decides for DEFAULT.
NIXL_SINCE = (0, 8)
# Second names: one class in nixl/connector.py of vLLM 0.31.0, one backend in SGLang.
SAME_BACKEND = {"NixlPullConnector": "NixlConnector", "mooncake_tcp": "mooncake"}
# Parts of the names of draft models with layers in the KV cache, which n-gram drafting has not.
DRAFTS_WITH_KV = ("eagle", "mtp", "nextn", "draft", "dspark")
# Of speculative-config (nixl/metadata.py 0.31.0).
DRAFT_DETAILS = ("revision", "code_revision", "parallel_drafting", "kv_cache_dtype")


def effective_backend(worker: Worker) -> str | None:
    """The KV transfer backend or connector in effect; None if none is set."""
    key = TRANSFER_KEYS.get(worker.engine)
    backend = worker.get(key) if key else None
    if backend == "DEFAULT" and worker.is_trtllm:
        names = (n for n in BY_VARIABLE if worker.env(f"TRTLLM_USE_{n}_KVCACHE") == "1")
        is_old = (dynamo_version(worker.pod) or NIXL_SINCE) < NIXL_SINCE
        return next(names, "UCX" if is_old else "NIXL")
    if backend is None and worker.settings.is_complete:
        backend = DEFAULT_BACKENDS.get(worker.engine)
    return str(backend) if backend else None


def differ(first: Any, second: Any) -> bool:
    """Whether two settings differ; None is the engine's default."""
    return bool(first != second)


def converts_blocks(prefill: Worker, decode: Worker) -> bool:
    """Whether vLLM's decode workers read whole prefill blocks: `block_size_ratio` in
    kv_connector/utils.py, and nixl/base_worker.py of 0.31.0, which needs enough decode ranks."""
    first, second = prefill.count("block_size"), decode.count("block_size")
    if not first or not second:
        return False
    return first == second or (second % first == 0 and decode.tp >= prefill.tp)


def canonical_type(name: Any) -> str:
    """The usual name of a type; `auto` if it is unset."""
    text = str(name or "auto").lower()
    return {"fp8_e4m3": "fp8", "bf16": "bfloat16"}.get(text, text)


def change_of_kv_type(
    deployment: ServingDeployment, prefill: Worker, decode: Worker
) -> tuple[Worker, Any]:
    """The worker whose KV cache type to change, and the type: none that an engine lacks."""
    first, second = prefill.value("kv_dtype"), decode.value("kv_dtype")
    changes = [(decode, first), (prefill, second)]
    worker, kind = changes.pop(0 if first is not None else 1)
    gpu, model = deployment.gpu, deployment.model
    if kind in ("fp8", "fp8_e4m3") and any(
        lacks_fp8_kv(w.engine, gpu, model) for w in deployment.workers
    ):
        worker, kind = changes[0]
    return worker, "auto" if kind is None else kind


def draft_of(worker: Worker) -> str:
    """The method of speculative decoding and its model; empty without it."""
    section = worker.value("speculation")
    if not isinstance(section, Mapping):
        return str(section or "")
    kind = section.get("decoding_type") or section.get("method") or "a draft model"
    model = section.get("speculative_model") or section.get("speculative_model_dir")
    return f"{kind} {model or section.get('model') or ''}".strip()


def different_details(prefill: Worker, decode: Worker) -> Iterator[str]:
    """The keys of equal draft models that differ and that vLLM's NIXL handshake compares."""
    first, second = prefill.value("speculation"), decode.value("speculation")
    are_sections = isinstance(first, Mapping) and isinstance(second, Mapping)
    is_compared = "eagle" in draft_of(decode).lower() and "Nixl" in str(effective_backend(decode))
    if decode.engine is Engine.VLLM and are_sections and is_compared:
        for key in DRAFT_DETAILS if draft_of(prefill) == draft_of(decode) else ():
            # An unset type is that of the pool's own KV cache.
            is_known = key != "kv_cache_dtype" or None not in (first.get(key), second.get(key))
            if is_known and (first.get(key) or None) != (second.get(key) or None):
                yield key


def nixl_pairs(deployment: ServingDeployment) -> Iterator[tuple[Worker, Worker]]:
    """(prefill, decode) workers that transfer KV with NIXL and compare the handshake's hash."""
    for pair in deployment.pairs:
        if all(_compares_hash(worker) for worker in pair):
            yield pair


def _compares_hash(worker: Worker) -> bool:
    connector = connector_of(worker)
    return (
        connector is not None
        and connector.has_nixl
        and all(c.extra.get("enforce_handshake_compat") is not False for c in connectors_of(worker))
    )


def has_hybrid_manager(worker: Worker) -> bool | None:
    """Whether the hybrid KV cache manager is on since vLLM 0.23; None if unknown."""
    flag, connector = hma_flag(worker), connector_of(worker)
    if flag is not None:
        return not flag
    return connector.supports_hma if connector is not None else None


def model_differences(prefill: Worker, decode: Worker) -> Iterator[tuple[str, Any, Any]]:
    """(key, prefill's setting, decode's) of what the pools load differently."""
    for name in ("model", "dtype"):
        first, second = prefill.value(name), decode.value(name)
        is_set = first is not None and second is not None and "auto" not in (first, second)
        if is_set and _canonical(first) != _canonical(second):
            yield name, first, second
    backends = _attention_backend(prefill), _attention_backend(decode)
    if None not in backends and backends[0] != backends[1]:
        yield BACKEND_KEYS[0], *backends


def _canonical(name: Any) -> str:
    text = str(name)
    return {"half": "float16", "float": "float32"}.get(text, text)


def _attention_backend(worker: Worker) -> str | None:
    names = (str(worker.get(key) or "auto").upper() for key in BACKEND_KEYS)
    return next((name for name in names if name != "AUTO"), None)


STAGING = "SGLANG_DISAGG_STAGING_BUFFER"


def attention_tp(worker: Worker) -> int:
    """GPUs that share the KV heads of a sequence."""
    return max(1, worker.tp // worker.attention_ranks)


def unequal_pairs(
    deployment: ServingDeployment, backend: str
) -> Iterator[tuple[Worker, Worker, ModelFacts]]:
    """Prefill and decode workers with different attention TP that transfer single KV heads."""
    for prefill, decode in deployment.pairs:
        facts = deployment.facts_of(decode)
        if decode.engine is not Engine.SGLANG or facts is None or not facts.kv_heads:
            continue
        has_one_latent = facts.is_mla or facts.kind in OWN_SELECTION
        is_used = all(_transfers_heads(worker, backend) for worker in (prefill, decode))
        if is_used and not has_one_latent and attention_tp(prefill) != attention_tp(decode):
            yield prefill, decode, facts


def _transfers_heads(worker: Worker, backend: str) -> bool:
    """Whether the backend transfers them, without the staging buffer, which gathers them."""
    used = str(worker.get("disaggregation-transfer-backend") or "mooncake")
    stages = is_on(worker, STAGING) or STAGING in worker.launch.unknown_variables
    return worker.is_laid_out and worker.settings.is_complete and used == backend and not stages


def decode_radix_cache(worker: Worker) -> bool:
    """Whether it is a decode worker whose radix cache is enabled."""
    is_enabled = worker.get("disaggregation-decode-enable-radix-cache") is True
    return worker.role is Role.DECODE and is_enabled


def same_tp(prefill: Worker, decode: Worker) -> str:
    """How to give both the same attention TP."""
    if decode.tp != prefill.tp:
        return f"Use the same TP and number of GPUs on {prefill.name} and {decode.name}."
    if prefill.has_attention_dp:
        return (
            f"Set dp-size {prefill.attention_ranks} and enable-dp-attention on {decode.name} "
            f"as on {prefill.name}."
        )
    return f"Remove enable-dp-attention from {decode.name}, as {prefill.name} lacks it."
