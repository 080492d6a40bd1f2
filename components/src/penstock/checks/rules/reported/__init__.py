"""Facts for failures that users reported: families of models and GPUs, by config or by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from penstock.checks.rules.containers import mappings, security_context
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine
from penstock.manifests.pods import resources_of
from penstock.models.known import has_nvfp4, last_part
from penstock.serving.deployment import ServingDeployment
from penstock.serving.understand import node_labels
from penstock.serving.worker import Worker
from penstock.text.values import as_mapping

PRODUCT_LABEL = "nvidia.com/gpu.product"
EFA = "vpc.amazonaws.com/efa"
# All models of these families have gated delta net or Mamba layers among attention layers.
RECURRENT_NAME = re.compile(
    r"^(qwen-?3\.[568]-(?!omni|embedding|reranker|asr|tts)|qwen3-next-|nvidia-nemotron-3-"
    r"|nemotron-h-|kimi-linear-)",
    re.IGNORECASE,
)
GATED_DELTA_NAME = re.compile(
    r"^(qwen-?3\.[568]-(?!omni|embedding|reranker|asr)|qwen3-next-)", re.IGNORECASE
)
# Organizations whose checkpoints that end in -FP8 have the quant_method `fp8`.
FP8_AUTHORS = ("qwen", "deepseek-ai", "zai-org", "minimaxai", "xiaomimimo", "stepfun-ai")
FP8_NAME = re.compile(r"-fp8$", re.IGNORECASE)
# Checkpoints without quantization, by the whole id.
UNQUANTIZED_NAME = re.compile(r"-bf16$|^deepseek-ai/deepseek-v2(\.5|-lite)?(-|$)", re.IGNORECASE)
WITHOUT_REASONING = re.compile(
    r"deepseek-v3(-0324)?(-(fp4|fp8|nvfp4|bf16|awq|int4))*$", re.IGNORECASE
)
# SGLang's attention backend → the variable of its alignment in deterministic inference.
ALIGNMENTS: Mapping[str, str] = {
    "flashinfer": "SGLANG_FLASHINFER_PREFILL_SPLIT_TILE_SIZE",
    "triton": "SGLANG_TRITON_PREFILL_TRUNCATION_ALIGN_SIZE",
}
# Attention backend → the lowest SM that it supports, for GPUs before Hopper.
ATTENTION_SGLANG: Mapping[str, int] = {
    "fa3": 80,
    "trtllm_mha": 90,
    "flashmla": 90,
    **dict.fromkeys(("trtllm_mla", "cutlass_mla", "tokenspeed_mla"), 100),
}
ATTENTION_VLLM: Mapping[str, int] = {
    "FLASH_ATTN": 80,
    "FLASHINFER": 75,
    "CUTLASS_MLA": 100,
    "FLASHINFER_MLA": 100,
    **dict.fromkeys(("FLASHMLA", "FLASHMLA_SPARSE", "FLASH_ATTN_MLA"), 90),
}
# `moe-backend` of vLLM → the generations (SM / 10) with kernels for weights in any format
# (`_supports_current_device` of 0.19.0 to 0.31.0), only those that all these versions have.
EXPERTS_VLLM: Mapping[str, tuple[int, ...]] = {
    "flashinfer_trtllm": (10,),
    "flashinfer_cutedsl": (10,),
    "flashinfer_b12x": (12,),
    "flashinfer_cutlass": (9, 10, 11, 12),
    "cutlass": (9, 10, 11, 12),
    "deep_gemm": (9, 10, 11, 12),
}
# `get_min_capability` where all versions agree; SGLang's AWQ and GPTQ are those of Marlin.
LEAST_CAPABILITY: Mapping[tuple[Engine, str], int] = {
    **{(Engine.VLLM, method): 75 for method in ("fp8", "awq", "awq_marlin", "torchao")},
    **{(Engine.VLLM, method): 80 for method in ("mxfp4", "fbgemm_fp8", "experts_int8")},
    (Engine.VLLM, "compressed-tensors"): 70,
    **{(Engine.SGLANG, method): 80 for method in ("fp8", "mxfp4", "blockwise_int8", "awq_marlin")},
    **{(Engine.SGLANG, method): 89 for method in ("modelopt_fp8", "w8a8_fp8")},
    **{(Engine.SGLANG, method): 90 for method in ("w4afp8", "petit_nvfp4")},
}
# SM of GPUs that `penstock.hardware` does not know, by a word of their product label.
OLDER_GPUS: Mapping[str, int] = {
    "p100": 60,
    "p40": 61,
    "p4": 61,
    "v100": 70,
    "v100s": 70,
    "t4": 75,
    "a100": 80,
    "a30": 80,
    **dict.fromkeys(("a10", "a10g", "a16", "a40"), 86),
    **dict.fromkeys(("l4", "l40", "l40s"), 89),
}


def compute_capability(deployment: ServingDeployment, worker: Worker) -> int | None:
    """The SM of the worker's GPU, such as 90 for Hopper; None if it is unknown."""
    labels = [*node_labels(worker.pod, (PRODUCT_LABEL,))]
    older = {sm for label in labels for sm in _older(label)}
    if deployment.gpu is not None:
        return None if older else deployment.gpu.sm
    is_each_known = all([*_older(label)] for label in labels)
    return older.pop() if len(older) == 1 and is_each_known else None


def _older(label: str) -> Iterator[int]:
    words = re.split(r"[^a-z0-9]+", label.lower())
    yield from (OLDER_GPUS[word] for word in words if word in OLDER_GPUS)


def model_file_name(worker: Worker) -> str:
    """The last part of the model's id or path; in a Hugging Face cache, that of the id."""
    return last_part(str(worker.value("model") or ""))


def has_recurrent_layers(deployment: ServingDeployment, worker: Worker) -> bool | None:
    """Whether the model has Mamba or linear attention besides attention; None if unknown."""
    facts = deployment.facts_of(worker)
    if facts is not None:
        return facts.is_hybrid
    return True if RECURRENT_NAME.search(model_file_name(worker)) else None


def has_gated_delta_net(deployment: ServingDeployment, worker: Worker) -> bool | None:
    """Whether the model's recurrent layers are gated delta nets, as in Qwen3.5; None if unknown."""
    facts = deployment.facts_of(worker)
    if facts is not None:
        return facts.is_hybrid and facts.kind.startswith(("qwen3_next", "qwen3_5"))
    return True if GATED_DELTA_NAME.search(model_file_name(worker)) else None


def weights_method(deployment: ServingDeployment, worker: Worker) -> str | None:
    """`quant_method` of the checkpoint, or `none` if it is not quantized, from its config or its
    name; None if unknown."""
    facts = deployment.facts_of(worker)
    if facts is not None and facts.quantization is not None:
        return facts.quantization
    model = str(worker.value("model") or "")
    if UNQUANTIZED_NAME.search(model):
        return "none"
    author, _, name = model.rpartition("/")
    if author.lower() in FP8_AUTHORS and FP8_NAME.search(name):
        return "fp8"
    return None


def has_nvfp4_experts(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether the checkpoint's experts are in NVFP4, by its config or its name, whatever the format
    of its other layers."""
    facts = deployment.facts_of(worker)
    is_known = facts is not None and facts.has_nvfp4_experts
    return is_known or has_nvfp4(str(worker.value("model") or ""))


def is_deepseek_v4(deployment: ServingDeployment, worker: Worker) -> bool | None:
    """Whether the model is DeepSeek's own V4 with MXFP4 experts; None if the model is unknown."""
    facts = deployment.facts_of(worker)
    if facts is None:
        return None
    name = model_file_name(worker).lower()
    return facts.kind == "deepseek_v4" and not any(t in name for t in ("fp8", "nvfp4", "bf16"))


def has_sparse_attention(deployment: ServingDeployment, worker: Worker) -> bool | None:
    """Whether the model has DeepSeek's sparse attention (DSA); None if unknown."""
    facts = deployment.facts_of(worker)
    return None if facts is None else facts.kind in ("deepseek_v32", "glm_moe_dsa")


def host_infiniband(deployment: ServingDeployment) -> Iterator[tuple[Worker, Location]]:
    """Workers without privileges whose pod has EFA devices and mounts /dev/infiniband of its node,
    and the place of the volume."""
    for worker in deployment.one_worker_per_component:
        main, of_service = resources_of(worker.pod)
        limits = {*as_mapping(main["limits"].value)}
        limits |= {*as_mapping(of_service["limits"]["custom"].value)}
        if EFA not in limits or security_context(worker.pod).get("privileged") is True:
            continue
        for volume in mappings(worker.pod.volumes.value):
            path = as_mapping(volume.get("hostPath")).get("path", "")
            if str(path).rstrip("/") == "/dev/infiniband":
                name = str(volume.get("name"))
                yield worker, worker.location("field", "pod", "volumes", name)


def shares_index_of_drafts(deployment: ServingDeployment, worker: Worker) -> bool | None:
    """Whether config.json has `index_share_for_mtp_iteration`, as in GLM-5.2 and GLM-5.3."""
    facts = deployment.facts_of(worker)
    if facts is None or facts.kind != "glm_moe_dsa":
        return None if facts is None else False
    return re.match(r"glm-5\.[23](-|$)", model_file_name(worker), re.IGNORECASE) is not None


def is_deepseek_without_reasoning(worker: Worker) -> bool:
    """Whether the model is DeepSeek-V3 or V3-0324, in any quantization."""
    return WITHOUT_REASONING.match(model_file_name(worker)) is not None


def attention_key(worker: Worker) -> str:
    """SGLang's key that sets the attention backend of prefill, decode or both."""
    keys = ("prefill-attention-backend", "decode-attention-backend", "attention-backend")
    return next((key for key in keys if str(worker.get(key)) in ATTENTION_SGLANG), keys[-1])


def least_capability(worker: Worker, method: object) -> int | None:
    """The SM that the engine requires for a quantization; None if it is not known."""
    return LEAST_CAPABILITY.get((worker.engine, str(method)))
