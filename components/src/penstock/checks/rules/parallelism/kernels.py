"""Which GPU and model each attention backend, MoE backend and format of weights has kernels for."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checks.version_range import UNCHANGED, Versions
from penstock.manifests.deployment import Engine

# `supports_compute_capability`: the generations (SM / 10) of GPUs.
GENERATIONS: Mapping[str, tuple[int, ...]] = {
    "FLASH_ATTN_MLA": (9,),
    "FLASHMLA": (9, 10),
    "CUTLASS_MLA": (10,),
    "FLASHINFER_MLA": (10,),
}
OF_MLA = (*GENERATIONS, "TRITON_MLA")
NOT_OF_MLA = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
# Backends that support no fp8 KV cache, in every version of the range.
PLAIN_KV_ONLY = ("FLEX_ATTENTION", "FLASH_ATTN_MLA")
# KV cache type → the versions of vLLM that accept it and have no backend without MLA for it.
WITHOUT_BACKEND: Mapping[str, Versions] = {
    "fp8_ds_mla": UNCHANGED,
    "nvfp4_ds_mla": UNCHANGED,
    "fp8_inc": UNCHANGED,
    # `CacheConfig`: “invalid option for models that do not default to fp8”.
    "bfloat16": Versions(vllm="<0.16"),
}

# SGLang's attention backend of both phases, and those of one phase, which take precedence.
ATTENTION_BACKENDS = (
    "attention-backend",
    "decode-attention-backend",
    "prefill-attention-backend",
)
# `handle_model_specific_adjustments` in sglang/srt/arg_groups/model_hook.py 0.5.21, CUDA's.
SGLANG_WITH_SINKS = ("triton", "trtllm_mha", "fa3", "fa4")

# SM → TensorRT-LLM's MoE backends for gpt-oss (examples/models/core/gpt_oss/README.md, Jan 2026).
_ON_BLACKWELL = ("AUTO", "CUTLASS", "TRTLLM", "CUTEDSL")
MOE_KERNELS: Mapping[int, tuple[str, ...]] = {
    90: ("AUTO", "TRITON", "CUTLASS"),
    100: _ON_BLACKWELL,
    103: _ON_BLACKWELL,
    120: ("AUTO", "TRITON"),
}

# TensorRT-LLM has no NVFP4 GEMM before SM 100; from 1.3.0rc19 on, it may dequantize (#14775).
# SGLang's modelopt_fp4 and mxfp8 state a capability of 100.
WITHOUT_NVFP4 = Versions(trtllm="<1.3.0rc19", sglang="<0.5.14")
# Value of quantization → versions that need SM 100.
BLACKWELL_ONLY: Mapping[Engine, Mapping[str, Versions]] = {
    Engine.SGLANG: {"mxfp8": UNCHANGED, "nvfp4_online": UNCHANGED},
    Engine.VLLM: {
        "fp_quant": UNCHANGED,
        "mxfp8": Versions(vllm="<0.20"),
        "modelopt_mxfp8": Versions(vllm="<0.20"),
    },
}
