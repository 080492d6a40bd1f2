"""The settings of speculative decoding: its method, its draft model and what reads the draft."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.hardware import Gpu
from penstock.serving.understand import PRODUCT_LABELS
from penstock.serving.worker import Worker
from penstock.text.values import as_mapping, positive_int

# Methods that vLLM schedules asynchronously, up to 0.32.
ASYNC_METHODS = (
    *("eagle", "eagle3", "mtp", "draft_model", "ngram_gpu", "dspark", "dflash"),
    "extract_hidden_states",
)
# vLLM's methods that need no draft model (`SpeculativeConfig.__post_init__` 0.31.0).
METHODS_WITHOUT_MODEL = (
    *("mtp", "dspark", "ngram", "[ngram]", "ngram_gpu", "suffix", "custom_class"),
    "extract_hidden_states",
)
# Drafts that attend to later tokens; on Blackwell they have no fp8 KV cache at all (vllm#48787).
NOT_CAUSAL = ("dflash", "dspark")
# Words in the product labels of GPUs with SM 89, about which nothing else is known.
ADA = frozenset({"4090", "4080", "l4", "l40", "l40s"})


def drafts_of(worker: Worker) -> Mapping[str, Any] | None:
    """The speculative configuration if it is a mapping (TensorRT-LLM's and vLLM's), else None."""
    configured = worker.value("speculation")
    return configured if isinstance(configured, Mapping) else None


def draft_model(drafts: Mapping[str, Any] | None) -> str:
    """The id or path of the draft model; empty without one."""
    names = ("speculative_model", "speculative_model_dir", "model")
    models = (as_mapping(drafts).get(name) for name in names)
    return next((str(model) for model in models if model), "")


def draft_length(drafts: Mapping[str, Any] | None) -> int | None:
    """The number of draft tokens; None if it is not set."""
    settings = as_mapping(drafts)
    return positive_int(settings.get("max_draft_len") or settings.get("num_speculative_tokens"))


def draft_method(worker: Worker) -> str:
    """The method of vLLM or SGLang, under vLLM's current name: deepseek_mtp and the like are MTP.
    Empty if none is set."""
    configured = worker.value("speculation")
    method = configured.get("method") if isinstance(configured, Mapping) else configured
    return "mtp" if str(method).endswith("_mtp") else str(method or "")


def first_entry(schedule: Any) -> Any:
    """The draft length of the smallest batch in TensorRT-LLM's draft_len_schedule."""
    if not isinstance(schedule, Mapping) or not schedule:
        return None
    return schedule[min(schedule, key=lambda size: positive_int(size) or 0)]


def drafts_with_flashinfer(worker: Worker, gpu: Gpu | None) -> bool:
    """Whether vLLM selects FlashInfer for the layers of the draft."""
    section = as_mapping(drafts_of(worker))
    backend = section.get("attention_backend") or worker.get("attention-backend")
    if backend is not None:
        return str(backend).upper() == "FLASHINFER"
    if gpu is None:
        # On SM 89, FlashAttention 2 has no fp8 KV cache, and FlashInfer is next.
        return _is_ada(worker)
    method = str(section.get("method") or "")
    return gpu.is_blackwell and bool(method) and method not in NOT_CAUSAL


def _is_ada(worker: Worker) -> bool:
    """Whether the node selector names a GPU of SM 89."""
    labels = as_mapping(worker.pod.spec.get("nodeSelector"))
    words = (re.split(r"[^a-z0-9]+", str(labels.get(key, "")).lower()) for key in PRODUCT_LABELS)
    return any(not ADA.isdisjoint(label) for label in words)
