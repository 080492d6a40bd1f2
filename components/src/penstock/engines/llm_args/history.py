"""Keys and values of TensorRT-LLM's YAML that went or came, with the version.

Sources: the API reference that NVIDIA/TensorRT-LLM keeps for each release (gh-pages), llm_args.py
at several commits, and the pull requests named. A version that is not exact says "by".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The TensorRT-LLM in Dynamo's images (ai-dynamo's own requirements).
IN_DYNAMO = {(1, 4): "1.3.0rc22", (1, 5): "1.3.0rc25", (1, 6): "1.3.0rc29"}
Version = tuple[int, int]


@dataclass(frozen=True)
class Gone:
    """``since`` is TensorRT-LLM's version; ``dynamo`` the first Dynamo that refuses it."""

    since: str
    replacement: str = ""
    dynamo: Version = (1, 0)


@dataclass(frozen=True)
class Added:
    """``since`` is TensorRT-LLM's version; ``dynamo`` the first Dynamo that has it."""

    since: str
    dynamo: Version


_FLAT = "1.0.0"
_ENGINE = Gone("1.0.0 (it was of the TensorRT engine backend)")
GONE: Mapping[str, Gone] = {
    "use_cuda_graph": Gone(_FLAT, "cuda_graph_config (null switches graphs off)"),
    "cuda_graph_batch_sizes": Gone(_FLAT, "cuda_graph_config.batch_sizes"),
    "cuda_graph_max_batch_size": Gone(_FLAT, "cuda_graph_config.max_batch_size"),
    "cuda_graph_padding_enabled": Gone(_FLAT, "cuda_graph_config.enable_padding"),
    "cuda_graph_config.padding_enabled": Gone(_FLAT, "cuda_graph_config.enable_padding"),
    "cuda_graph_config.cuda_graph_batch_sizes": Gone(_FLAT, "cuda_graph_config.batch_sizes"),
    "moe_backend": Gone(_FLAT, "moe_config.backend"),
    "moe_load_balancer": Gone(_FLAT, "moe_config.load_balancer"),
    "moe_max_num_tokens": Gone(_FLAT, "moe_config.max_num_tokens"),
    "kv_cache_dtype": Gone(_FLAT, "kv_cache_config.dtype"),
    "autotuner_enabled": Gone(_FLAT, "enable_autotuner"),
    "mixed_sampler": Gone(_FLAT),
    "enable_mixed_sampler": Gone("by 1.3.0"),
    "mixed_decoder": Gone("0.21"),
    "enable_trtllm_decoder": Gone("0.21"),
    "enable_trtllm_sampler": Gone("1.1.0"),
    "use_torch_sampler": Gone("1.1.0"),
    "sampler_type": Gone("1.3.0rc26", "", (1, 6)),
    "torch_compile_enabled": Gone("0.21.0", "torch_compile_config"),
    "torch_compile_config.torch_compile_fullgraph": Gone(
        _FLAT, "torch_compile_config.enable_fullgraph"
    ),
    "torch_compile_config.torch_compile_inductor_enabled": Gone(
        _FLAT, "torch_compile_config.enable_inductor"
    ),
    "torch_compile_config.torch_compile_piecewise_cuda_graph": Gone(
        _FLAT, "prefill_cuda_graph_backend"
    ),
    "torch_compile_config.torch_compile_enable_userbuffers": Gone(
        _FLAT, "torch_compile_config.enable_userbuffers"
    ),
    "pytorch_backend_config": Gone("0.21", "the same keys at the top level"),
    "enable_overlap_scheduler": Gone("0.20.0", "disable_overlap_scheduler, the other way round"),
    "build_config": Gone("by 1.3.0", "max_batch_size, max_num_tokens, max_seq_len at the top"),
    "max_lora_rank": Gone(_FLAT, "lora_config.max_lora_rank"),
    "max_loras": Gone(_FLAT, "lora_config.max_loras"),
    "max_cpu_loras": Gone(_FLAT, "lora_config.max_cpu_loras"),
    "enable_prompt_adapter": Gone(_FLAT),
    "max_prompt_adapter_token": Gone(_FLAT),
    "extended_runtime_perf_knob_config": _ENGINE,
    "auto_parallel": _ENGINE,
    "auto_parallel_world_size": _ENGINE,
    "calib_config": _ENGINE,
    "embedding_parallel_mode": _ENGINE,
    "enable_build_cache": _ENGINE,
    "enable_tqdm": _ENGINE,
    "fast_build": _ENGINE,
    "workspace": _ENGINE,
    "batching_type": Gone("by 1.3.0"),
    "normalize_log_probs": Gone("by 1.3.0"),
    "disable_flashinfer_sampling": Gone("1.3.0rc24"),
    "connector_config": Gone("1.1.0", "kv_connector_config"),
    "kv_cache_free_gpu_memory_fraction": Gone(
        "ever: it is an option of trtllm-serve", "kv_cache_config.free_gpu_memory_fraction"
    ),
    "kv_cache_config.block_reuse_policy": Gone(
        "by 1.3.0rc29", "kv_cache_config.block_reuse_config.policy"
    ),
    "kv_cache_config.block_reuse_config.block_reuse_policy": Gone(
        "by 1.3.0rc29", "kv_cache_config.block_reuse_config.policy"
    ),
    "cache_transceiver_config.max_num_tokens": Gone(
        "1.2.0", "cache_transceiver_config.max_tokens_in_buffer"
    ),
    "speculative_config.pytorch_weights_path": Gone(_FLAT, "speculative_config.speculative_model"),
    "speculative_config.eagle3_one_model": Gone("1.3.0rc27", "", (1, 6)),
    "speculative_config.greedy_sampling": Gone("1.3.0rc27", "", (1, 6)),
    "speculative_config.posterior_threshold": Gone("1.3.0rc27", "", (1, 6)),
    "speculative_config.mtp_eagle_one_model": Gone("1.3.0rc27", "", (1, 6)),
    "speculative_config.eagle_choices": Gone(
        "1.3.0rc29", "use_dynamic_tree with dynamic_tree_max_topK", (1, 6)
    ),
}
GONE_VALUES: Mapping[tuple[str, str], Gone] = {
    ("moe_config.backend", "WIDEEP"): Gone(
        "1.3.0rc25", "CUTEDSL (NVFP4), DEEPGEMM (FP8 blocks), TRTLLM or CUTLASS", (1, 5)
    ),
    ("speculative_config.decoding_type", "Medusa"): Gone("1.0.0", "Eagle3, MTP or NGram"),
    ("speculative_config.decoding_type", "Lookahead"): Gone("1.0.0", "NGram"),
}
# Keys that are gone, with values that are taken out and ignored.
IGNORED = (("sampler_type", "auto"), ("sampler_type", "TorchSampler"))
# Accepted still, with what the engine itself says about it.
DEPRECATED: Mapping[str, str] = {
    "moe_cluster_parallel_size": "remove it",
    "decoding_config": "use speculative_config",
    "perf_metrics_max_requests": "it has no effect; use perf_metrics_output_dir",
    "torch_compile_config.enable_piecewise_cuda_graph": "use prefill_cuda_graph_backend: piecewise",
    "torch_compile_config.capture_num_tokens": "use prefill_capture_num_tokens",
    "kv_cache_config.sink_token_length": "it has no effect; remove it",
    "kv_cache_config.mamba_state_cache_interval": (
        "use kv_cache_config.mamba_state_config.periodic_snapshot_interval"
    ),
    "speculative_config.num_nextn_predict_layers": "use max_draft_len",
    "speculative_config.allow_advanced_sampling": "it has no effect; remove it",
    "speculative_config.speculative_model_dir": "use speculative_model",
}
ADDED: Mapping[str, Added] = {
    "kv_cache_config.kv_events_config": Added("1.3.0rc27", (1, 6)),
    "enable_in_graph_sampling": Added("1.3.0rc27", (1, 6)),
    "enable_mla_skip_correction": Added("1.3.0rc26", (1, 6)),
    "checkpoint_io_policy": Added("1.3.0rc26", (1, 6)),
    "cache_transceiver_config.enable_pipelined_transfer": Added("1.3.0rc26", (1, 6)),
    "prefill_cuda_graph_backend": Added("1.3.0rc26", (1, 6)),
    "prefill_capture_num_tokens": Added("1.3.0rc26", (1, 6)),
    "kv_cache_config.kv_pool_rebalance_check_interval": Added("1.3.0rc27", (1, 6)),
    "cache_transceiver_config.agent_bounce_buffer_enable": Added("1.4.0rc1", (1, 7)),
    "cache_transceiver_config.agent_bounce_params": Added("1.4.0rc1", (1, 7)),
    "speculative_config.spec_dec_variant": Added("1.4.0rc1", (1, 7)),
    "speculative_config.moe_backend": Added("1.3.0rc28", (1, 6)),
}
