"""Rules about targets of speculative decoding that lack what a draft needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import UNCHANGED, Versions
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


@rule(
    id="PS180",
    title="EAGLE3 with a target that SGLang does not support",
    level=Level.ERROR,
    cause="EAGLE3 reads hidden states of the target, and the class of this model cannot return "
    "them (set_eagle3_layers_to_capture is missing).",
    effect="SGLang raises AttributeError at startup.",
    remedy="Remove speculative-algorithm, or use a later image.",
    source="sglang/srt/models of 0.5.4.post3 to 0.5.11 (qwen3_vl.py 1398, qwen3_vl_moe.py, "
    "qwen3_5.py, qwen3_next.py); model_executor/model_runner.py 587 of 0.5.8; sglang#17935",
    versions=Versions(sglang="<0.5.11"),
)
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


@rule(
    id="PS181",
    title="fp8 KV cache only for the draft of a hybrid model",
    level=Level.ERROR,
    cause="speculative-config sets kv_cache_dtype fp8, and the target keeps its own type. For the "
    "layers of the draft, FlashInfer reads the type of the target, which is auto.",
    effect="The engine stops at startup: “Unrecognized dtype: auto”.",
    remedy="Remove kv_cache_dtype from speculative-config.",
    source="vllm/v1/attention/backends/flashinfer.py 706-726 of 0.26.0, 785-807 of 0.28.0 and "
    "775-797 of 0.31.0, 970 of 0.33.0; vllm#54690 (0.28.0, RTX 4090)",
    versions=UNCHANGED,
    engines=(Engine.VLLM,),
    exceptions="Nothing is reported if vLLM selects another backend than FlashInfer for the draft, "
    "as on Hopper.",
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
