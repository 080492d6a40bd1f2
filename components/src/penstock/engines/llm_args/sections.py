"""The sections of TensorRT-LLM's engine YAML.

Names, types and choices: the API reference of 1.3.0rc28 and rc29 (ai-dynamo 1.6.1 pins rc29).
Limits and validators: tensorrt_llm/llmapi/llm_args.py of an unmerged pull request, #19077.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictInt, model_validator

from penstock.engines.llm_args.base import Count, EngineArgs, Opaque, Positive
from penstock.engines.llm_args.limits import (
    KvDtype,
    PoolRatio,
    Tag,
    Text,
    Windows,
    contradiction,
)

MoeBackend = Literal[
    "AUTO",
    "CUTLASS",
    "CUTEDSL",
    "CUTEDSL_FC12",  # Rubin only
    "TRTLLM",
    "DEEPGEMM",
    "DENSEGEMM",
    "VANILLA",
    "TRITON",
    "MARLIN",
    "MEGAMOE_DEEPGEMM",
    "MEGAMOE_CUTEDSL",
]
GemmBackend = Literal["cutlass", "cublaslt", "cutedsl", "cuda_core", "marlin"]
CapacityPolicy = Literal["MAX_UTILIZATION", "GUARANTEED_NO_EVICT", "STATIC_BATCH"]
ChunkingPolicy = Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS", "FORCE_CHUNK"]


class TorchCompileConfig(EngineArgs):
    """`torch_compile_config`."""

    enable_fullgraph: bool = True
    enable_inductor: bool = False
    enable_piecewise_cuda_graph: bool = False
    capture_num_tokens: list[Positive] | None = None
    enable_userbuffers: bool = True
    max_num_streams: Positive = 3


class MxConfig(EngineArgs):
    """`mx_config`: ModelExpress."""

    server_url: str | None = None
    server_query_timeout_s: Count | None = None  # deprecated and ignored
    preshard_strategy: Literal["per_module"] = "per_module"


class GmsConfig(EngineArgs):
    """`gms_config`: the GPU memory service."""

    socket_path: str | None = None
    mode: Literal["auto", "rw", "ro"] = "auto"
    tag: Tag = "weights"


class BlockReuseConfig(EngineArgs):
    """`kv_cache_config.block_reuse_config`."""

    policy: Literal["all_reusable", "per_request", "per_conversation"] = "all_reusable"
    max_num_turns: Positive = 1


class KVEventsConfig(EngineArgs):
    """`kv_cache_config.kv_events_config`: streamed events."""

    enable_kv_cache_events: bool = False
    publisher: Literal["null", "zmq"] | None = None
    endpoint: Text = "tcp://*:5557"  # port + attention-dp rank
    replay_endpoint: Text | None = None
    buffer_steps: Positive = 10000
    hwm: Positive = 100000
    max_queue_size: Positive = 100000
    topic: str = ""


class MambaStateConfig(EngineArgs):
    """`kv_cache_config.mamba_state_config`."""

    periodic_snapshot_interval: Count = 0
    additional_snapshot_offsets_from_start: list[Annotated[StrictInt, Field(ge=1)]] = Field(
        default_factory=list
    )
    additional_snapshot_offsets_from_end: list[Annotated[StrictInt, Field(ge=0)]] = Field(
        default_factory=list
    )
    enable_branch_snapshot: bool = False


class KvCacheConfig(EngineArgs):
    """`kv_cache_config`."""

    # false disables KV-aware routing (Dynamo warns and routes by load)
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    # repeated cyclically over the layers; gpt-oss sliding/full alternation = [128, <max_seq_len>]
    max_attention_window: Windows | None = None
    # fraction of the memory left AFTER weights, graphs and workspaces
    free_gpu_memory_fraction: Annotated[float, Field(ge=0, le=1)] = 0.9
    host_cache_size: int | None = None
    disk_cache_size: Count | None = None
    disk_cache_path: str | None = None
    # Dynamo sets 100000 when KV events are polled and it is unset or 0
    event_buffer_max_size: Count = 0
    attention_dp_events_gather_period_ms: int = 5
    # streaming events; Dynamo then requires env TLLM_KV_CACHE_MANAGER_V2_BACKEND=python
    kv_events_config: KVEventsConfig | None = None
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    use_uvm: bool = False
    max_gpu_total_bytes: Count = 0
    iteration_stats_interval: Positive = 1
    dtype: KvDtype = "auto"  # must be the same on prefill and decode
    # what the engine reports wins over --kv-block-size; must be the same on both pools
    tokens_per_block: Positive = 32
    use_kv_cache_manager_v2: bool | Literal["auto"] = "auto"
    kv_cache_event_hash_algo: Literal["auto", "v1_block_key", "v2_sha256", "v2_sha256_64"] = "auto"
    max_util_for_resume: Annotated[float, Field(gt=0, le=1)] = 0.95
    block_reuse_config: BlockReuseConfig = BlockReuseConfig.defaults()
    pool_ratio: PoolRatio | None = None
    secondary_offload_min_priority: int | None = None
    cross_kv_cache_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    enable_kv_pool_rebalance: bool = False
    sink_token_length: int | None = None  # deprecated and ignored
    mamba_ssm_cache_dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    mamba_ssm_stochastic_rounding: bool = False
    mamba_ssm_philox_rounds: Positive = 10
    mamba_state_cache_interval: Count | None = None  # now in mamba_state_config
    mamba_state_config: MambaStateConfig = MambaStateConfig.defaults()
    enable_swa_scratch_reuse: bool = False
    disk_prefetch_num_reqs: Count = 0
    fp8_context_mla_kv_len_cap: int | None = None
    avg_seq_len: Positive | None = None


class CacheTransceiverConfig(EngineArgs):
    """`cache_transceiver_config`: how KV moves between prefill and decode."""

    # None = off. DEFAULT = TRTLLM_USE_{NIXL,UCX,MOONCAKE,MPI}_KVCACHE=1 env if set, else NIXL
    backend: Literal["DEFAULT", "UCX", "NIXL", "MOONCAKE", "MPI"] | None = None
    # auto: PYTHON unless non-NIXL backend or null timeout; decided per server and only logged, so
    # set it explicitly and alike on both pools
    transceiver_runtime: Literal["CPP", "PYTHON", "auto"] | None = "auto"
    max_tokens_in_buffer: Count | None = None  # >= longest prompt, multiple of tokens_per_block
    # PYTHON runtime requires a finite value; 60 s is short for long contexts
    kv_transfer_timeout_ms: Positive | None = 60000
    kv_transfer_sender_future_timeout_ms: Positive | None = 1000
    kv_transfer_poll_interval_ms: Positive | None = 5000
    kv_cache_bounce_size_mb: Count = 0
    # needs PYTHON runtime + NIXL + chunked prefill, PP=CP=1, beam 1
    enable_pipelined_transfer: bool = False
    agent_bounce_buffer_enable: bool = False
    agent_bounce_params: dict[str, str] | None = None


class LoadBalancer(EngineArgs):
    """`moe_config.load_balancer` as a map."""

    num_slots: int | None = None
    initial_global_assignments: Opaque | dict[int, list[int]] | None = None
    layer_updates_per_iter: int = 0


class MoeConfig(EngineArgs):
    """`moe_config`."""

    # WIDEEP was removed from the enum; some tools still write it, and the worker exits at startup
    backend: MoeBackend = "AUTO"
    max_num_tokens: int | None = None
    load_balancer: LoadBalancer | str | None = None  # rejected together with GMS
    disable_finalize_fusion: bool = False
    use_low_precision_moe_combine: bool = False  # NVFP4 only


class Nvfp4GemmConfig(EngineArgs):
    """`nvfp4_gemm_config`."""

    # The engine's own selection if unset.
    allowed_backends: Annotated[list[GemmBackend], Field(min_length=1)] = Field(
        default_factory=list
    )


class KvConnectorConfig(EngineArgs):
    """`kv_connector_config`: a preset, or three names."""

    connector: str | None = None
    connector_module: str | None = None
    connector_scheduler_class: str | None = None
    connector_worker_class: str | None = None


ENCODE_KEYS = ("num_tokens", "max_num_token", "seq_lens", "max_seq_len")


class CudaGraphConfig(EngineArgs):
    """`cuda_graph_config`: two classes of the engine, chosen by `mode`."""

    batch_sizes: list[Positive] | None = None
    max_batch_size: Count = 0  # 0 and no batch_sizes -> 128
    enable_padding: bool = False
    mode: Literal["decode", "encode"] = "decode"  # unset: encode if one of ENCODE_KEYS is set
    num_tokens: Annotated[list[Positive], Field(min_length=1)] | None = None
    max_num_token: Count = 0
    seq_lens: Annotated[list[Positive], Field(min_length=1)] | None = None
    max_seq_len: Count = 0

    @model_validator(mode="after")
    def has_keys_of_its_mode(self) -> Self:
        given = [key for key in ENCODE_KEYS if key in self.model_fields_set]
        if "mode" in self.model_fields_set and self.mode == "decode" and given:
            raise contradiction(
                given[0],
                f"{given[0]} is a key of mode encode, but mode is decode",
                f"Remove {given[0]}, or set mode to encode.",
            )
        return self


class AttentionDpConfig(EngineArgs):
    """`attention_dp_config`."""

    enable_balance: bool = False
    timeout_iters: int = 50
    batching_wait_iters: int = 10
    enable_kv_cache_aware_routing: bool = False
    kv_cache_routing_conversation_affinity: bool = False
    kv_cache_routing_load_balance_weight: float = 1.0
    kv_cache_routing_match_rate_threshold: float = 0.1
    kv_cache_routing_fair_share_multiplier: float = 2.0
    kv_cache_routing_cold_start_warmup: bool = False
    kv_cache_routing_account_for_in_transfer: bool = False
    kv_cache_routing_max_sessions: int = 65536
    kv_cache_routing_new_conv_placement: Literal["round_robin", "least_queued"] = "round_robin"


class SchedulerConfig(EngineArgs):
    """`scheduler_config`."""

    capacity_scheduler_policy: CapacityPolicy = "GUARANTEED_NO_EVICT"
    context_chunking_policy: ChunkingPolicy | None = None
    dynamic_batch_config: Opaque | None = None
    waiting_queue_policy: Literal["fcfs", "priority"] = "fcfs"
    use_python_scheduler: bool = False
    enable_prefix_aware_scheduling: bool = True
