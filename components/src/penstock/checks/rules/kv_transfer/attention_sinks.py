"""The rule about KV connectors that leave vLLM without an attention kernel with sinks."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.vllm_connectors import (
    SECTION,
    connector_of,
    hma_flag,
)
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

SIZE = "kv-offloading-size"
BACKENDS = ("attention-backend", "attention-config.backend")
# Where one is set, vLLM selects another backend than FlashInfer.
NO_TRTLLM = ("VLLM_BATCH_INVARIANT", "VLLM_ATTENTION_BACKEND", "VLLM_USE_TRTLLM_ATTENTION")
TRTLLM = "attention-config.use_trtllm_attention"
# `get_supported_head_sizes`: for others vLLM does not select FlashInfer.
HEAD_SIZES = (64, 128, 256)


def no_sinks_with_connector(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers if gpu is not None and gpu.is_blackwell else ():
        facts = deployment.facts_of(worker)
        key = _connector_key(worker)
        if facts is None or key is None or gpu is None or not _uses_flashinfer(worker, facts):
            continue
        set_by = next((name for name in BACKENDS if worker.get(name) is not None), None)
        is_native = _offloads(worker)
        yield RuleResult(
            location=worker.config_location(set_by or key),
            message=f"with {key}, FlashInfer does not support the attention sinks of "
            f"{worker.value('model')} on {gpu.name}"
            + ("" if set_by else ", and vLLM selects FlashInfer by default"),
            fix=Fix(
                text="Set attention-backend to TRITON_ATTN.",
                config={set_by or BACKENDS[0]: "TRITON_ATTN"},
            ),
            versions=Versions(vllm=">=0.14,<0.17" if is_native else ">=0.16,<0.17"),
        )


def _connector_key(worker: Worker) -> str | None:
    """The key that turns a KV connector on."""
    if worker.engine is not Engine.VLLM or not worker.settings.is_complete:
        return None
    if connector_of(worker) is not None:
        return SECTION
    return SIZE if worker.get(SIZE) is not None else None


def _offloads(worker: Worker) -> bool:
    """Whether OffloadingConnector lays the KV of all layers out as one block."""
    if hma_flag(worker) is False:
        return False
    connector = connector_of(worker)
    if connector is not None:
        return connector.name == "OffloadingConnector"
    return worker.get("kv-offloading-backend") in (None, "native")


def _uses_flashinfer(worker: Worker, facts: ModelFacts) -> bool:
    """Whether FlashInfer computes the attention of a model with sinks."""
    if not facts.has_sinks or not facts.head_sizes:
        return False
    given = [str(worker.get(key)).upper() for key in BACKENDS if worker.get(key) is not None]
    launch = worker.launch
    is_off = any(worker.env(name) or name in launch.unknown_variables for name in NO_TRTLLM)
    return (
        all(name in ("FLASHINFER", "AUTO") for name in given)
        and all(size in HEAD_SIZES for size in facts.head_sizes)
        and worker.get(TRTLLM) is not False
        and not is_off
    )
