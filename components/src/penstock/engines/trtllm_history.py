"""Keys and values that TensorRT-LLM's YAML lost or gained, with the version.

Sources: the API reference that NVIDIA/TensorRT-LLM keeps for each release (gh-pages), llm_args.py
at several commits, and the pull requests named. "1.3.0 or earlier" is a version that is not exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Of Dynamo. Its images contain TensorRT-LLM 1.3.0rc22 (1.4), 1.3.0rc25 (1.5) and 1.3.0rc29 (1.6),
# according to ai-dynamo's requirements.
Version = tuple[int, int]


@dataclass(frozen=True)
class RemovedKey:
    """A key or value that TensorRT-LLM no longer accepts."""

    # The version of TensorRT-LLM that removed it; empty if no version had it.
    since: str
    # The dotted key that takes the value unchanged.
    key: str = ""
    # The first Dynamo that rejects it.
    dynamo: Version = (1, 0)
    # What to use instead, if it is not a key that takes the value unchanged.
    instead: str = ""
    # To what it belonged, or belongs.
    note: str = ""

    @property
    def replacement(self) -> str:
        return self.key or self.instead


@dataclass(frozen=True)
class AddedKey:
    """A key that an older TensorRT-LLM does not have."""

    # The first version of TensorRT-LLM that has it.
    since: str
    # The first Dynamo that has it.
    dynamo: Version


def _keys(removed: RemovedKey, keys: str) -> dict[str, RemovedKey]:
    return dict.fromkeys(keys.split(), removed)


_FLAT = "1.0.0"
_ENGINE = RemovedKey("1.0.0", note="it belonged to the TensorRT engine backend")
# Keys whose value another key takes unchanged, since 1.0.0.
_MOVED = {
    "cuda_graph_batch_sizes": "cuda_graph_config.batch_sizes",
    "cuda_graph_max_batch_size": "cuda_graph_config.max_batch_size",
    "cuda_graph_padding_enabled": "cuda_graph_config.enable_padding",
    "cuda_graph_config.padding_enabled": "cuda_graph_config.enable_padding",
    "cuda_graph_config.cuda_graph_batch_sizes": "cuda_graph_config.batch_sizes",
    "moe_backend": "moe_config.backend",
    "moe_load_balancer": "moe_config.load_balancer",
    "moe_max_num_tokens": "moe_config.max_num_tokens",
    "kv_cache_dtype": "kv_cache_config.dtype",
    "autotuner_enabled": "enable_autotuner",
    "torch_compile_config.torch_compile_fullgraph": "torch_compile_config.enable_fullgraph",
    "torch_compile_config.torch_compile_inductor_enabled": "torch_compile_config.enable_inductor",
    "torch_compile_config.torch_compile_piecewise_cuda_graph": "prefill_cuda_graph_backend",
    "max_lora_rank": "lora_config.max_lora_rank",
    "max_loras": "lora_config.max_loras",
    "max_cpu_loras": "lora_config.max_cpu_loras",
    "speculative_config.pytorch_weights_path": "speculative_config.speculative_model",
}
REMOVED: Mapping[str, RemovedKey] = {
    **{old: RemovedKey(_FLAT, new) for old, new in _MOVED.items()},
    **_keys(
        _ENGINE,
        "extended_runtime_perf_knob_config auto_parallel auto_parallel_world_size calib_config"
        " embedding_parallel_mode enable_build_cache enable_tqdm fast_build workspace",
    ),
    **_keys(RemovedKey(_FLAT), "mixed_sampler enable_prompt_adapter max_prompt_adapter_token"),
    **_keys(
        RemovedKey("1.3.0 or earlier"), "enable_mixed_sampler batching_type normalize_log_probs"
    ),
    **_keys(RemovedKey("0.21"), "mixed_decoder enable_trtllm_decoder"),
    **_keys(RemovedKey("1.1.0"), "enable_trtllm_sampler use_torch_sampler"),
    **_keys(
        RemovedKey("1.3.0rc27", dynamo=(1, 6)),
        "speculative_config.eagle3_one_model speculative_config.greedy_sampling"
        " speculative_config.posterior_threshold speculative_config.mtp_eagle_one_model",
    ),
    "use_cuda_graph": RemovedKey(_FLAT, instead="cuda_graph_config (null switches graphs off)"),
    "sampler_type": RemovedKey("1.3.0rc26", dynamo=(1, 6)),
    "torch_compile_config.torch_compile_enable_userbuffers": RemovedKey(
        _FLAT, "torch_compile_config.enable_userbuffers"
    ),
    "torch_compile_enabled": RemovedKey("0.21.0", "torch_compile_config"),
    "pytorch_backend_config": RemovedKey("0.21", instead="the same keys at the top level"),
    "enable_overlap_scheduler": RemovedKey(
        "0.20.0", instead="disable_overlap_scheduler, with the opposite value"
    ),
    "build_config": RemovedKey(
        "1.3.0 or earlier", instead="max_batch_size, max_num_tokens, max_seq_len at the top"
    ),
    "disable_flashinfer_sampling": RemovedKey("1.3.0rc24"),
    "connector_config": RemovedKey("1.1.0", "kv_connector_config"),
    "kv_cache_free_gpu_memory_fraction": RemovedKey(
        "", "kv_cache_config.free_gpu_memory_fraction", note="it is an option of trtllm-serve"
    ),
    "kv_cache_config.block_reuse_policy": RemovedKey(
        "1.3.0rc29 or earlier", "kv_cache_config.block_reuse_config.policy"
    ),
    "kv_cache_config.block_reuse_config.block_reuse_policy": RemovedKey(
        "1.3.0rc29 or earlier", "kv_cache_config.block_reuse_config.policy"
    ),
    "cache_transceiver_config.max_num_tokens": RemovedKey(
        "1.2.0", "cache_transceiver_config.max_tokens_in_buffer"
    ),
    "speculative_config.eagle_choices": RemovedKey(
        "1.3.0rc29", instead="use_dynamic_tree with dynamic_tree_max_topK", dynamo=(1, 6)
    ),
}
REMOVED_VALUES: Mapping[tuple[str, str], RemovedKey] = {
    ("moe_config.backend", "WIDEEP"): RemovedKey(
        "1.3.0rc25",
        instead="CUTEDSL (NVFP4), DEEPGEMM (FP8 blocks), TRTLLM or CUTLASS",
        dynamo=(1, 5),
    ),
    ("speculative_config.decoding_type", "Medusa"): RemovedKey(
        "1.0.0", instead="Eagle3, MTP or NGram"
    ),
    ("speculative_config.decoding_type", "Lookahead"): RemovedKey("1.0.0", instead="NGram"),
}
# Values that an older TensorRT-LLM accepts → the first Dynamo whose TensorRT-LLM does not. 1.0.0rc6
# (Dynamo 0.4 and 0.5.0) has them in lower case: release/0.5.0 of ai-dynamo/dynamo, decode.yaml.
EARLIER_VALUES: Mapping[tuple[str, str], str] = {
    ("cache_transceiver_config.backend", name): "0.5.1"
    for name in ("default", "ucx", "nixl", "mpi")
}
# Removed keys that TensorRT-LLM ignores if they have this value.
IGNORED = (("sampler_type", "auto"), ("sampler_type", "TorchSampler"))
# Keys that TensorRT-LLM still accepts but will remove → what to do instead.
DEPRECATED: Mapping[str, str] = {
    "moe_cluster_parallel_size": "Remove it.",
    "decoding_config": "Use speculative_config.",
    "perf_metrics_max_requests": "Use perf_metrics_output_dir; this key has no effect.",
    "torch_compile_config.enable_piecewise_cuda_graph": (
        "Use prefill_cuda_graph_backend: piecewise."
    ),
    "torch_compile_config.capture_num_tokens": "Use prefill_capture_num_tokens.",
    "kv_cache_config.sink_token_length": "Remove it; it has no effect.",
    "kv_cache_config.mamba_state_cache_interval": (
        "Use kv_cache_config.mamba_state_config.periodic_snapshot_interval."
    ),
    "speculative_config.num_nextn_predict_layers": "Use max_draft_len.",
    "speculative_config.allow_advanced_sampling": "Remove it; it has no effect.",
    "mx_config.server_query_timeout_s": "Remove it; it has no effect.",
    "speculative_config.num_eagle_layers": "Remove it; max_draft_len replaces its value.",
    "speculative_config.speculative_model_dir": "Use speculative_model.",
}
ADDED: Mapping[str, AddedKey] = {
    "kv_cache_config.kv_events_config": AddedKey("1.3.0rc27", (1, 6)),
    "enable_in_graph_sampling": AddedKey("1.3.0rc27", (1, 6)),
    "enable_mla_skip_correction": AddedKey("1.3.0rc26", (1, 6)),
    "checkpoint_io_policy": AddedKey("1.3.0rc26", (1, 6)),
    "cache_transceiver_config.enable_pipelined_transfer": AddedKey("1.3.0rc26", (1, 6)),
    "prefill_cuda_graph_backend": AddedKey("1.3.0rc26", (1, 6)),
    "prefill_capture_num_tokens": AddedKey("1.3.0rc26", (1, 6)),
    "cache_transceiver_config.agent_bounce_buffer_enable": AddedKey("1.3.0rc28", (1, 6)),
    "cache_transceiver_config.agent_bounce_params": AddedKey("1.3.0rc28", (1, 6)),
    "speculative_config.spec_dec_variant": AddedKey("1.4.0rc1", (1, 7)),
    "enable_tokenization_cache": AddedKey("1.3.0rc29 or earlier", (1, 6)),
    "enable_return_routed_experts": AddedKey("1.3.0rc29 or earlier", (1, 6)),
    "speculative_config.moe_backend": AddedKey("1.3.0rc28", (1, 6)),
}
