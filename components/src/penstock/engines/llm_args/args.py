"""The top level of TensorRT-LLM's engine YAML, `TorchLlmArgs`.

Names, types and choices: the API reference of 1.3.0rc29 (the version that ai-dynamo 1.6.1 pins).
Limits and validators: tensorrt_llm/llmapi/llm_args.py of an unmerged pull request, #19077.
NotNull: a file must not contain null, because the engine calls the class with the section's keys.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from penstock.engines.llm_args.base import Count, EngineArgs, Opaque, Positive
from penstock.engines.llm_args.limits import EnvValue, LoadFormat, NotNull
from penstock.engines.llm_args.sections import (
    AttentionDpConfig,
    CacheTransceiverConfig,
    CudaGraphConfig,
    GmsConfig,
    KvCacheConfig,
    KvConnectorConfig,
    MoeConfig,
    MxConfig,
    Nvfp4GemmConfig,
    SchedulerConfig,
    TorchCompileConfig,
)

AllReduce = Literal[
    "AUTO",
    "NCCL",
    "UB",
    "MINLATENCY",
    "ONESHOT",
    "TWOSHOT",
    "LOWPRECISION",
    "MNNVL",
    "NCCL_SYMMETRIC",
]


class TorchLlmArgs(EngineArgs):
    """The file."""

    model: str | None = None  # set by Dynamo from --model; do not put into the engine YAML
    backend: Literal["pytorch"] = "pytorch"  # Dynamo 1.6 only knows pytorch
    tokenizer: str | None = None
    tokenizer_mode: Literal["auto", "slow"] = "auto"
    custom_tokenizer: str | None = None
    skip_tokenizer_init: bool = False
    trust_remote_code: bool = False
    # hf_revision is its name for the command line, which the file may use too
    revision: str | None = Field(
        default=None, validation_alias=AliasChoices("revision", "hf_revision")
    )
    model_kwargs: Opaque | None = None
    dtype: str = "auto"
    tensor_parallel_size: Positive = 1
    pipeline_parallel_size: Positive = 1
    context_parallel_size: Positive = 1
    gpus_per_node: int | None = None  # Dynamo fills in the visible GPU count unless --gpus-per-node
    moe_tensor_parallel_size: int | None = None
    moe_expert_parallel_size: int | None = None
    moe_cluster_parallel_size: int | None = None
    enable_attention_dp: bool = False
    enable_lm_head_tp_in_adp: bool = False
    pp_partition: list[int] | None = None
    cp_config: Opaque | None = None
    load_format: LoadFormat = "AUTO"
    enable_lora: bool = False  # Dynamo: LoRA on TRT-LLM not supported
    lora_config: Annotated[Opaque | None, NotNull] = None
    kv_cache_config: KvCacheConfig = KvCacheConfig.defaults()
    enable_chunked_prefill: bool = False
    guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None
    iter_stats_max_iterations: Annotated[int, Field(ge=-1)] | None = None
    peft_cache_config: Opaque | None = None
    scheduler_config: SchedulerConfig = SchedulerConfig.defaults()
    # None = KV transfer off; disaggregation then fails at the first KV transfer
    cache_transceiver_config: CacheTransceiverConfig | None = None
    sparse_attention_config: Opaque | None = None
    kv_cache_compression_config: Opaque | None = None
    speculative_config: Opaque | None = None
    max_batch_size: Positive | None = 2048
    max_input_len: int | None = 1024  # TensorRT-backend relic; max_num_tokens/max_seq_len govern
    max_seq_len: Positive | None = None
    max_beam_width: Positive | None = 1
    max_num_tokens: Positive | None = 8192
    gather_generation_logits: bool = False
    num_postprocess_workers: Count = 0  # Dynamo strips it from the engine arguments with a warning
    num_serve_frontends: Annotated[int, Field(ge=1, le=64)] = 1  # trtllm-serve only
    reasoning_parser: str | None = None  # trtllm-serve only; with Dynamo use --dyn-reasoning-parser
    orchestrator_type: Literal["rpc", "ray"] | None = None
    return_perf_metrics: bool = False
    env_overrides: dict[str, EnvValue] | None = None
    telemetry_config: Annotated[Opaque | None, NotNull] = None
    otlp_traces_endpoint: str | None = None
    prometheus_metrics_config: Opaque | None = None
    enable_energy_metrics: bool = False
    generation_config: Literal["auto", "trtllm"] = "trtllm"
    garbage_collection_gen0_threshold: int = 20000
    # null disables CUDA graphs; roughly <=200 MB per captured graph
    cuda_graph_config: CudaGraphConfig | None = CudaGraphConfig.defaults()
    attention_dp_config: Annotated[AttentionDpConfig | None, NotNull] = None
    disable_overlap_scheduler: bool = False  # must be true on prefill-only workers
    moe_config: MoeConfig = MoeConfig.defaults()
    nvfp4_gemm_config: Nvfp4GemmConfig = Nvfp4GemmConfig.defaults()
    dwdp_config: Annotated[Opaque | None, NotNull] = None
    # gpt-oss (attention sinks) is documented on TRTLLM; an unknown name means TRTLLM (warning)
    attn_backend: str = "TRTLLM"
    enable_early_first_token_response: bool = False  # switched off in disaggregated serving
    # Dynamo turns it on with --publish-metrics or when DYN_FORWARDPASS_METRIC_PORT is set (the
    # operator sets it)
    enable_iter_perf_stats: bool = False
    enable_iter_req_stats: bool = False
    enable_tokenization_cache: bool = False
    enable_return_routed_experts: bool = False
    print_iter_log: bool = False
    batch_wait_timeout_ms: Annotated[float, Field(ge=0)] = 0
    batch_wait_timeout_iters: Count = 0
    batch_wait_max_tokens_ratio: Annotated[float, Field(ge=0, le=1)] = 0
    torch_compile_config: TorchCompileConfig | None = None
    # breakable excludes torch_compile_config and LoRA
    prefill_cuda_graph_backend: Literal["disabled", "piecewise", "breakable"] = "disabled"
    # default when a backend is on: powers of two 1..128, then 256..3072 step 256
    prefill_capture_num_tokens: list[int] | None = None
    enable_autotuner: bool = True
    enable_min_latency: bool = False
    # keep 1 with --dyn-tool-call-parser harmony / --dyn-reasoning-parser gpt_oss (dynamo#6664)
    stream_interval: Positive = 1
    allreduce_strategy: AllReduce | None = "AUTO"
    # null means HF; MX = ModelExpress P2P with fallback; a string, not an enum
    checkpoint_format: str | None = None
    checkpoint_loader: Opaque | None = None
    checkpoint_io_policy: Literal["auto", "native", "rank_striped_read_ahead"] = "auto"
    mx_config: MxConfig = MxConfig.defaults()
    gms_config: GmsConfig = GmsConfig.defaults()  # ignored (warning) unless load_format GMS
    kv_connector_config: KvConnectorConfig | None = (
        None  # Dynamo sets it from --connector none|kvbm
    )
    sleep_config: Opaque | None = None  # Dynamo sets it for GMS/snapshot
    reorder_policy_config: Annotated[Opaque | None, NotNull] = None
    max_stats_len: Annotated[int, Field(ge=-1)] = 1000
    encoder_cuda_graph_config: Opaque | None = None
    enable_encoder_decoder_mixed_cuda_graph: bool = True
    multimodal_config: Opaque | None = None
    encoder_max_batch_size: Positive | None = None
    encoder_max_num_tokens: Positive | None = None
    enable_mla_skip_correction: bool = False
    mla_skip_correction_threshold: Annotated[float, Field(le=32, gt=0)] = 8.0
    sampler_force_async_worker: bool = False
    # captures a further set of graphs: slower warm-up, more memory
    enable_in_graph_sampling: bool = False
    enable_speculative_beam_history_d2h: bool = False
    enable_low_latency_host_dispatch: bool = False  # needs CUDA 13.2+
    use_fine_grained_sync: bool = False  # SM107 only
    enable_layerwise_nvtx_marker: bool = False
    force_dynamic_quantization: bool = False
    mm_encoder_only: bool = False
    disable_mm_encoder: bool = False
    encode_only: bool = False
    ray_worker_extension_cls: str | None = None
    ray_placement_config: Opaque | None = None
    ray_worker_nsight_options: Opaque | None = None
    enable_resource_governor: bool = False  # per-iteration broadcast
    use_cute_dsl_blockscaling_mm: bool = False
    use_cute_dsl_blockscaling_bmm: bool = False
    # Blackwell only; switched on by itself for PP>1 on SM100/103
    use_cute_dsl_bf16_bmm: bool = False
    use_cute_dsl_bf16_gemm: bool = False  # Blackwell only
    tokenizer_revision: str | None = None
    post_processor_hook: str | None = None
    batched_logits_processor: Opaque | None = None
    request_stats_max_iterations: Annotated[int, Field(ge=-1)] | None = None
    postprocess_tokenizer_dir: str | None = None
    decoding_config: Annotated[Opaque | None, NotNull] = None  # deprecated: speculative_config
    perf_metrics_output_dir: str | None = None
    perf_metrics_max_requests: Count = 0
    layer_wise_benchmarks_config: Annotated[Opaque | None, NotNull] = None
