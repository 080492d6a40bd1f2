"""Cases of GPU memory (PS30x)."""

from __future__ import annotations

from tests.checks.cases_parallelism import DENSE, H100, H200, sglang, trtllm, vllm
from tests.checks.model_folders import model
from tests.checks.support import REMOVE, TRTLLM_AGG, Case, manifest

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
    Case(
        rule="PS301",
        bad=trtllm(ONE_H100 | {"worker/config/max_num_tokens": 131072}),
        near=trtllm(ONE_H100),
    ),
    Case(
        rule="PS301",
        bad=vllm(THREE_QUARTERS | {"hardware": H100}),
        near=vllm(THREE_QUARTERS | {"hardware": H200}),
    ),
    Case(
        rule="PS302",
        bad=trtllm(
            ONE_H100
            | {"model/context_length": 131072}
            | {"engine/config/kv_cache_config/free_gpu_memory_fraction": 0.5}
        ),
        near=trtllm(ONE_H100),
    ),
    Case(
        rule="PS303",
        bad=trtllm(ONE_H100 | {"model/context_length": 81920}),
        near=trtllm(ONE_H100 | {"model/context_length": 81920, "worker/gpus": 2}),
    ),
    Case(
        rule="PS305",
        bad=trtllm({"worker/config/kv_cache_config/max_tokens": 100_000_000}),
        near=trtllm({"worker/config/kv_cache_config/max_tokens": 1_000_000}),
    ),
    Case(
        rule="PS306",
        bad=trtllm({"engine/config/kv_cache_config/free_gpu_memory_fraction": 0.96}),
        near=trtllm({"engine/config/kv_cache_config/free_gpu_memory_fraction": 0.95}),
    ),
    Case(
        rule="PS306",
        bad=vllm({"worker/config/gpu-memory-utilization": 0.97}),
        near=vllm({"worker/config/gpu-memory-utilization": 0.95}),
    ),
    Case(
        rule="PS306",
        bad=sglang({"worker/args": ["--mem-fraction-static", "0.97"]}),
        near=sglang({"worker/args": ["--mem-fraction-static", "0.9"]}),
    ),
    Case(
        rule="PS307",
        bad=trtllm({"hardware/gpu": REMOVE}),
        near=trtllm({"hardware/gpu": REMOVE, "worker/pod/nodeSelector": B200_NODES}),
        is_example=True,
    ),
    Case(
        rule="PS307",
        bad=trtllm({"model/id": "acme/other"}),
        near=trtllm({"model/id": "acme/other", "model/path": DENSE}),
    ),
    Case(
        rule="PS307",
        bad=manifest({**TRTLLM_AGG, "model": {"id": "acme/other"}}),
        near=manifest(TRTLLM_AGG),
        gpu="b200",
    ),
    Case(  # an explicit limit
        rule="PS302",
        bad=trtllm({"worker/config/kv_cache_config/max_tokens": 32736}),
        near=trtllm({"worker/config/kv_cache_config/max_tokens": 65536}),
    ),
    Case(
        rule="PS302",
        bad=sglang({"worker/config/max-total-tokens": 16384}),
        near=sglang({"worker/config/max-total-tokens": 65536}),
    ),
    Case(
        rule="PS302",
        bad=vllm({"worker/config/num-gpu-blocks-override": 511}),
        near=vllm({"worker/config/num-gpu-blocks-override": 1024}),
    ),
    Case(
        rule="PS302",
        bad=vllm({"worker/config/kv_cache_memory_bytes": "500M"}),
        near=vllm({"worker/config/kv_cache_memory_bytes": "50G"}),
    ),
    Case(  # set instead of the fraction, which would be too small
        rule="PS301",
        bad=vllm({"worker/config/kv-cache-memory-bytes": 180 * 10**9}),
        near=vllm(
            {
                "worker/config/kv-cache-memory-bytes": 50 * 10**9,
                "worker/config/gpu-memory-utilization": 0.1,
            }
        ),
    ),
    Case(
        rule="PS302",
        bad=trtllm({"worker/config/kv_cache_config/max_gpu_total_bytes": 100 * 2**20}),
        near=trtllm({"worker/config/kv_cache_config/max_gpu_total_bytes": 10 * 2**30}),
    ),
    Case(  # weights that shrink when they are loaded
        rule="PS301",
        bad=vllm(ONE_H200),
        near=vllm(ONE_H200 | {"worker/config/quantization": "fp8_per_block"}),
    ),
    Case(
        rule="PS301",
        bad=sglang(ONE_H200),
        near=sglang(ONE_H200 | {"worker/config/quantization": "fp8"}),
    ),
    Case(
        rule="PS307",
        bad=vllm(ONE_H200 | {"worker/config/quantization": "bitsandbytes"}),
        near=vllm(ONE_H200 | {"worker/config/quantization": "fp8_per_tensor"}),
    ),
    Case(  # weights that stay in host memory
        rule="PS301",
        bad=vllm(ONE_H200 | {"worker/config/cpu-offload-gb": 1}),
        near=vllm(ONE_H200 | {"worker/config/cpu-offload-gb": 40}),
    ),
    Case(
        rule="PS307",
        bad=vllm({"worker/config/kv-cache-dtype": "int4_per_token_head"}),
        near=vllm({"worker/config/kv-cache-dtype": "nvfp4"}),
    ),
    Case(  # four ranks together hold one sequence, none holds a full one
        rule="PS302",
        bad=trtllm(RANKS | {"worker/config/kv_cache_config/max_tokens": 32736}),
        near=trtllm(RANKS | {"worker/config/kv_cache_config/max_tokens": 32768}),
    ),
    Case(
        rule="PS302",
        bad=sglang(
            {
                "worker/gpus": 4,
                "worker/config/enable-dp-attention": True,
                "worker/config/dp-size": 4,
                "worker/config/max-total-tokens": 32704,
            }
        ),
        near=sglang(
            {
                "worker/gpus": 4,
                "worker/config/enable-dp-attention": True,
                "worker/config/dp-size": 4,
                "worker/config/max-total-tokens": 32768,
            }
        ),
    ),
    Case(  # PS102 accepts 0, and the executor does not
        rule="PS306",
        bad=trtllm({"engine/config/kv_cache_config/free_gpu_memory_fraction": 0}),
        near=trtllm({"engine/config/kv_cache_config/free_gpu_memory_fraction": 0.9}),
    ),
    Case(  # not a fraction
        rule="PS306",
        bad=vllm({"worker/config/gpu_memory_utilization": 90}),
        near=vllm({"worker/config/gpu_memory_utilization": 0.9}),
    ),
)
