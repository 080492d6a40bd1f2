"""Cases of GPU memory (PS30x)."""

from __future__ import annotations

from tests.checks.cases_parallelism import DENSE, H100, H200, sglang, trtllm, vllm
from tests.checks.model_folders import model
from tests.checks.support import OMIT, REMOVE, TRTLLM_AGG, Case, X, manifest, vary

B200_NODES = {"nvidia.com/gpu.product": "NVIDIA-B200"}
THREE_QUARTERS = {"worker/gpus": 1, "worker/config/gpu-memory-utilization": 0.75}
# 120b barely fits on one H100.
ONE_H100 = {"hardware": H100, "worker/gpus": 1, "engine/config/kv_cache_config/dtype": "auto"}
SEVENTY = model(
    "seventy-billion",
    model_type="llama",
    num_hidden_layers=80,
    num_attention_heads=64,
    hidden_size=8192,
    intermediate_size=28672,
)
ONE_H200 = {"hardware": H200, "model/id": "acme/seventy", "model/path": SEVENTY}
ONE_H200 |= {"model/context_length": 8192, "worker/gpus": 1}
RANKS = {"hardware": H100, "worker/config/enable_attention_dp": True}

CASES: tuple[Case, ...] = (
    vary("PS301", trtllm)(ONE_H100 | {"worker/config/max_num_tokens": 131072}, ONE_H100),
    vary("PS301", vllm)(THREE_QUARTERS | {"hardware": H100}, THREE_QUARTERS | {"hardware": H200}),
    vary("PS302", trtllm)(
        ONE_H100
        | {"model/context_length": 131072}
        | {"engine/config/kv_cache_config/free_gpu_memory_fraction": 0.5},
        ONE_H100,
    ),
    vary("PS303", trtllm)(
        ONE_H100 | {"model/context_length": 81920},
        ONE_H100 | {"model/context_length": 81920, "worker/gpus": 2},
    ),
    vary("PS305", trtllm, {"worker/config/kv_cache_config/max_tokens": X})(100_000_000, 1_000_000),
    vary("PS306", trtllm, {"engine/config/kv_cache_config/free_gpu_memory_fraction": X})(
        0.96, 0.95
    ),
    vary("PS306", vllm, {"worker/config/gpu-memory-utilization": X})(0.97, 0.95),
    vary("PS306", sglang, {"worker/args": X})(
        ["--mem-fraction-static", "0.97"], ["--mem-fraction-static", "0.9"]
    ),
    vary("PS307", trtllm, {"hardware/gpu": REMOVE, "worker/pod/nodeSelector": X})(
        OMIT, B200_NODES, is_example=True
    ),
    vary("PS307", trtllm, {"model/id": "acme/other", "model/path": X})(OMIT, DENSE),
    vary("PS307", manifest)({**TRTLLM_AGG, "model": {"id": "acme/other"}}, TRTLLM_AGG, gpu="b200"),
    # an explicit limit
    vary("PS302", trtllm, {"worker/config/kv_cache_config/max_tokens": X})(32736, 65536),
    vary("PS302", sglang, {"worker/config/max-total-tokens": X})(16384, 65536),
    vary("PS302", vllm, {"worker/config/num-gpu-blocks-override": X})(511, 1024),
    vary("PS302", vllm, {"worker/config/kv_cache_memory_bytes": X})("500M", "50G"),
    # set instead of the fraction, which would be too small
    vary("PS301", vllm)(
        {"worker/config/kv-cache-memory-bytes": 180 * 10**9},
        {
            "worker/config/kv-cache-memory-bytes": 50 * 10**9,
            "worker/config/gpu-memory-utilization": 0.1,
        },
    ),
    vary("PS302", trtllm, {"worker/config/kv_cache_config/max_gpu_total_bytes": X})(
        100 * 2**20, 10 * 2**30
    ),
    # weights that shrink when they are loaded
    vary("PS301", vllm)(ONE_H200, ONE_H200 | {"worker/config/quantization": "fp8_per_block"}),
    vary("PS301", sglang)(ONE_H200, ONE_H200 | {"worker/config/quantization": "fp8"}),
    vary("PS307", vllm)(
        ONE_H200 | {"worker/config/quantization": "bitsandbytes"},
        ONE_H200 | {"worker/config/quantization": "fp8_per_tensor"},
    ),
    # weights that stay in host memory
    vary("PS301", vllm)(
        ONE_H200 | {"worker/config/cpu-offload-gb": 1},
        ONE_H200 | {"worker/config/cpu-offload-gb": 40},
    ),
    vary("PS307", vllm, {"worker/config/kv-cache-dtype": X})("int4_per_token_head", "nvfp4"),
    # four ranks together hold one sequence, none holds a full one
    vary("PS302", trtllm)(
        RANKS | {"worker/config/kv_cache_config/max_tokens": 32736},
        RANKS | {"worker/config/kv_cache_config/max_tokens": 32768},
    ),
    vary(
        "PS302",
        sglang,
        {
            "worker/gpus": 4,
            "worker/config/enable-dp-attention": True,
            "worker/config/dp-size": 4,
            "worker/config/max-total-tokens": X,
        },
    )(32704, 32768),
    # PS102 accepts 0, and the executor does not
    vary("PS306", trtllm, {"engine/config/kv_cache_config/free_gpu_memory_fraction": X})(0, 0.9),
    vary("PS306", vllm, {"worker/config/gpu_memory_utilization": X})(90, 0.9),  # not a fraction
)
