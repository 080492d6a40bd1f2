"""Names of settings: the same setting in each engine, and flags for keys of a file."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.manifests.deployment import Engine

# Settings that several engines have, with each engine's name for it: a dotted key of its file, or
# its flag without dashes.
COMMON_SETTINGS: Mapping[str, Mapping[Engine, str]] = {
    "model": {
        Engine.TRTLLM: "model",
        Engine.VLLM: "model",
        Engine.LLAMACPP: "model",
        Engine.SGLANG: "model-path",
        Engine.MOCKER: "model-path",
    },
    "tensor_parallel": {
        Engine.TRTLLM: "tensor_parallel_size",
        Engine.VLLM: "tensor-parallel-size",
        Engine.SGLANG: "tp-size",
    },
    "pipeline_parallel": {
        Engine.TRTLLM: "pipeline_parallel_size",
        Engine.VLLM: "pipeline-parallel-size",
        Engine.SGLANG: "pp-size",
    },
    "data_parallel": {Engine.VLLM: "data-parallel-size", Engine.SGLANG: "dp-size"},
    "context_length": {
        Engine.TRTLLM: "max_seq_len",
        Engine.VLLM: "max-model-len",
        Engine.LLAMACPP: "n_ctx_seq",
        Engine.SGLANG: "context-length",
        Engine.MOCKER: "engine.max_model_len",
    },
    "block_size": {
        Engine.TRTLLM: "kv_cache_config.tokens_per_block",
        Engine.VLLM: "block-size",
        Engine.LLAMACPP: "block_size",
        Engine.SGLANG: "page-size",
        Engine.MOCKER: "engine.block_size",
    },
    "kv_dtype": {
        Engine.TRTLLM: "kv_cache_config.dtype",
        Engine.VLLM: "kv-cache-dtype",
        Engine.SGLANG: "kv-cache-dtype",
        Engine.MOCKER: "engine.kv_cache_dtype",
    },
    "dtype": {Engine.TRTLLM: "dtype", Engine.VLLM: "dtype", Engine.SGLANG: "dtype"},
    "max_sequences": {
        Engine.TRTLLM: "max_batch_size",
        Engine.VLLM: "max-num-seqs",
        Engine.LLAMACPP: "n_parallel",
        Engine.SGLANG: "max-running-requests",
        Engine.MOCKER: "engine.max_num_seqs",
    },
    "max_batch_tokens": {
        Engine.TRTLLM: "max_num_tokens",
        Engine.VLLM: "max-num-batched-tokens",
        Engine.LLAMACPP: "n_batch",
        Engine.SGLANG: "chunked-prefill-size",
        Engine.MOCKER: "engine.max_num_batched_tokens",
    },
    "memory_fraction": {
        Engine.TRTLLM: "kv_cache_config.free_gpu_memory_fraction",
        Engine.VLLM: "gpu-memory-utilization",
        Engine.SGLANG: "mem-fraction-static",
    },
    "speculation": {
        Engine.TRTLLM: "speculative_config",
        Engine.VLLM: "speculative-config",
        Engine.SGLANG: "speculative-algorithm",
    },
}
# The command line's word for keys of TensorRT-LLM's file (dynamo/trtllm/args.py 1.6.1).
TRTLLM_FLAGS = {
    "model": "model",
    "tensor-parallel-size": "tensor_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "expert-parallel-size": "moe_expert_parallel_size",
    "enable-attention-dp": "enable_attention_dp",
    "max-batch-size": "max_batch_size",
    "max-num-tokens": "max_num_tokens",
    "max-seq-len": "max_seq_len",
    "max-beam-width": "max_beam_width",
    "free-gpu-memory-fraction": "kv_cache_config.free_gpu_memory_fraction",
    "load-format": "load_format",
}
# The mocker's flags for keys of its file, which replaces the command line.
MOCKER_FLAGS = {
    "block-size": "engine.block_size",
    "max-model-len": "engine.max_model_len",
    "max-num-seqs": "engine.max_num_seqs",
    "max-num-batched-tokens": "engine.max_num_batched_tokens",
    "kv-cache-dtype": "engine.kv_cache_dtype",
}
# vLLM's flags for parts of a section (vllm/engine/arg_utils.py 0.31.0).
PARTS = {
    "spec-method": "speculative-config.method",
    "spec-model": "speculative-config.model",
    "spec-tokens": "speculative-config.num_speculative_tokens",
}
