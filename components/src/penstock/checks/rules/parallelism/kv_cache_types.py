"""The rule about KV cache types that no attention backend of vLLM has for the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.parallelism.attention_backends import KEYS, OWN_SELECTION
from penstock.checks.version_range import UNCHANGED, Versions
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

KV = COMMON_SETTINGS["kv_dtype"][Engine.VLLM]
# Type → the versions that accept it on the command line and have no backend without MLA for it.
ONLY_OTHERS: Mapping[str, Versions] = {
    "fp8_ds_mla": UNCHANGED,
    "nvfp4_ds_mla": UNCHANGED,
    "fp8_inc": UNCHANGED,
    # `CacheConfig`: “invalid option for models that do not default to fp8”.
    "bfloat16": Versions(vllm="<0.16"),
}
# FlashAttention 3 accepts every type that begins with fp8, and then fails on it.
ON_HOPPER = Versions(vllm="<0.23")


def no_backend_for_type(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts, dtype = deployment.facts_of(worker), str(worker.value("kv_dtype") or "auto")
        if worker.engine is not Engine.VLLM or facts is None:
            continue
        if facts.is_mla or not facts.head_sizes or facts.kind in OWN_SELECTION:
            continue
        versions = ONLY_OTHERS.get(dtype)
        if dtype == "fp8_e5m2" and _takes_flash_attention(worker, deployment.gpu, facts):
            versions = ON_HOPPER
        if versions is not None:
            fits = "auto" if dtype == "bfloat16" else "fp8"
            yield RuleResult(
                location=worker.settings.location("kv_dtype"),
                message=f"no attention backend supports {KV} {dtype} for {worker.value('model')}"
                + (
                    f" on {deployment.gpu.name}" if versions is ON_HOPPER and deployment.gpu else ""
                ),
                fix=Fix(text=f"Set {KV} to {fits}.", config={KV: fits}),
                versions=versions,
            )


def _takes_flash_attention(worker: Worker, gpu: Gpu | None, facts: ModelFacts) -> bool:
    """Whether vLLM selects FlashAttention 3 by itself."""
    is_selected = any(worker.get(key) is not None for key in KEYS)
    is_selected = is_selected or worker.env("VLLM_ATTENTION_BACKEND") is not None
    return (
        gpu is not None
        and gpu.is_hopper
        and not is_selected
        and max(facts.head_sizes) <= 256
        and not worker.launch.has_unread_variables
    )
