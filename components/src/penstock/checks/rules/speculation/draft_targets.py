"""Rules about targets of speculative decoding that lack what a draft needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.understand import PRODUCT_LABELS
from penstock.serving.worker import Worker

SECTION, DRAFT_TYPE = "speculative-config", "kv_cache_dtype"
KV = COMMON_SETTINGS["kv_dtype"][Engine.VLLM]
# Kind of model → the versions whose class lacks set_eagle3_layers_to_capture.
WITHOUT_EAGLE3: Mapping[str, Versions] = {
    "qwen3_vl_text": Versions(sglang="<0.5.11"),
    "qwen3_vl_moe_text": Versions(sglang="<0.5.11"),
    "qwen3_5_text": Versions(sglang="<0.5.11"),
    "qwen3_5_moe_text": Versions(sglang="<0.5.11"),
    "qwen3_next": Versions(sglang="<0.5.9"),
}
# Drafts that attend to later tokens; on Blackwell they have no fp8 KV cache at all (vllm#48787).
NOT_CAUSAL = ("dflash", "dspark")
# Words in the product labels of GPUs with SM 89, about which nothing else is known.
ADA = frozenset({"4090", "4080", "l4", "l40", "l40s"})


def target_without_eagle3(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts = deployment.facts_of(worker)
        algorithm = str(worker.value("speculation") or "").upper()
        if worker.engine is not Engine.SGLANG or algorithm != "EAGLE3" or facts is None:
            continue
        versions = WITHOUT_EAGLE3.get(facts.kind)
        if versions is not None:
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"{worker.value('model')} does not support EAGLE3 in this version of "
                "SGLang",
                fix=Fix(
                    text="Remove the speculative settings, or use an image with a later SGLang."
                ),
                versions=versions,
            )


def draft_only_fp8(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts, section = deployment.facts_of(worker), worker.get(SECTION)
        if worker.engine is not Engine.VLLM or facts is None or not isinstance(section, Mapping):
            continue
        dtype = str(section.get(DRAFT_TYPE) or "")
        is_of_target = str(worker.value("kv_dtype") or "auto") == "auto" and not facts.kv_dtype
        if facts.is_hybrid and dtype.startswith("fp8") and is_of_target:
            if _drafts_with_flashinfer(worker, section, deployment.gpu):
                yield RuleResult(
                    location=worker.config_location(SECTION),
                    message=f"{DRAFT_TYPE} of {SECTION} is {dtype}, but {KV} of the target is auto",
                    fix=Fix(text=f"Remove {DRAFT_TYPE} from {SECTION}."),
                )


def _drafts_with_flashinfer(worker: Worker, section: Mapping[Any, Any], gpu: Gpu | None) -> bool:
    given = section.get("attention_backend") or worker.get("attention-backend")
    if given is not None:
        return str(given).upper() == "FLASHINFER"
    if gpu is None:
        # On SM 89, FlashAttention 2 has no fp8 KV cache, and FlashInfer is next.
        return _is_ada(worker)
    method = str(section.get("method") or "")
    return gpu.is_blackwell and bool(method) and method not in NOT_CAUSAL


def _is_ada(worker: Worker) -> bool:
    """Whether the node selector names a GPU of SM 89."""
    selector = worker.pod.spec.get("nodeSelector")
    labels = as_mapping(selector)
    words = (re.split(r"[^a-z0-9]+", str(labels.get(key, "")).lower()) for key in PRODUCT_LABELS)
    return any(not ADA.isdisjoint(found) for found in words)
