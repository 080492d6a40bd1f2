"""What the chart derives each value from: rendered name → paths in the graph.

Paths are in order of precedence. `{pool}` is the component. `config:KEY` is the key in the config
of the pool or of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping

Rules = Mapping[str, tuple[str, ...]]

_KV_EVENTS = ("router.kv_events", "router.mode")
_TRANSPORT = ("kv_transfer.transport", "hardware.fabric")
_FABRIC = ("hardware.fabric", "kv_transfer.transport")

# Fields of a component that do not come from the field of that name in the component's section.
PLAIN: Rules = {
    "image": ("{pool}.image", "engine.image", "hardware.fabric"),
    "gpus": ("{pool}.gpus", "{pool}.nodes", "engine.device"),
    "grace_s": ("drain_timeout_s",),
    "engine": ("engine.kind",),
    "role": ("{pool}",),
    "name": ("{pool}",),
    "program": ("engine.kind",),
    "replicas": ("{pool}.replicas", "{pool}.autoscaling"),
    "secrets": ("model.token_secret",),
}

ENV: Rules = {
    "DYN_DISCOVERY_BACKEND": ("infrastructure.discovery", "platform"),
    "ETCD_ENDPOINTS": ("infrastructure.etcd_endpoints",),
    "DYN_EVENT_PLANE": ("infrastructure.events",),
    "DYN_REQUEST_PLANE": ("infrastructure.requests",),
    "NATS_SERVER": ("infrastructure.nats_url",),
    "HF_HOME": ("model.cache.mount_path", "model.cache"),
    "TIKTOKEN_ENCODINGS_BASE": ("model.harmony_vocabulary",),
    "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": ("drain_timeout_s",),
    "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": ("drain_timeout_s",),
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": ("drain_timeout_s",),
    "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": ("drain_timeout_s",),
    "PROMETHEUS_ENDPOINT": ("cluster.monitoring.prometheus",),
    "DYN_HTTP_OVERLOAD_STATUS_CODE": ("frontend.overload_status",),
    "DYN_ENGINE_REQUEST_LIMIT": ("{pool}.request_limit",),
    "DYN_DYNAMO_REQUEST_QUEUE_LIMIT": ("{pool}.queue_limit",),
    "OTEL_EXPORT_ENABLED": ("tracing",),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("tracing.endpoint",),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("tracing.endpoint",),
    "OTEL_SERVICE_NAME": ("tracing",),
    "OTEL_TRACES_SAMPLE_RATIO": ("tracing.sample_ratio", "tracing"),
    "DYN_TRTLLM_PUBLISH_METRICS": ("{pool}.autoscaling.signal",),
    "HF_HUB_OFFLINE": ("model.cache.offline", "model.cache.download"),
    "UCX_TLS": _TRANSPORT,
    "UCX_RNDV_SCHEME": _TRANSPORT,
    "UCX_RNDV_THRESH": _TRANSPORT,
    "UCX_IB_ADDR_TYPE": _FABRIC,
    "UCX_CUDA_IPC_ENABLE_MNNVL": _FABRIC,
    "NCCL_MNNVL_ENABLE": _FABRIC,
    "NCCL_CUMEM_ENABLE": _FABRIC,
    "NCCL_NVLS_ENABLE": _FABRIC,
    "FI_PROVIDER": _FABRIC,
    "FI_EFA_USE_DEVICE_RDMA": _FABRIC,
    "FI_EFA_ENABLE_SHM_TRANSFER": _FABRIC,
    "TRTLLM_NIXL_KVCACHE_BACKEND": _FABRIC,
    "SGLANG_DISAGGREGATION_NIXL_BACKEND": _FABRIC,
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": ("kv_transfer.timeout_ms",),
}

# The planner takes its whole configuration as one JSON argument.
PLANNER_FLAGS: Rules = {
    "--config": (
        "planner.config",
        "planner.max_gpus",
        "engine.kind",
        *(f"{pool}.autoscaling" for pool in ("prefill", "decode", "worker")),
    )
}

FRONTEND_FLAGS: Rules = {
    "--http-port": ("frontend.port",),
    "--router-mode": ("router.mode",),
    "--no-router-kv-events": _KV_EVENTS,
    "--router-replica-sync": ("router.replica_sync", "router.mode"),
    "--router-kv-overlap-score-credit": ("router.overlap_score_credit",),
    "--router-prefill-load-scale": ("router.prefill_load_scale",),
    "--router-temperature": ("router.temperature",),
    "--router-ttl-secs": ("router.ttl_s",),
    "--router-min-initial-workers": ("router.min_initial_workers",),
    "--active-decode-blocks-threshold": ("router.active_decode_blocks_threshold",),
    "--active-prefill-tokens-threshold": ("router.active_prefill_tokens_threshold",),
    "--router-queue-threshold": ("router.queue_threshold",),
    "--router-queue-policy": ("router.queue_policy",),
    "--router-policy-config": (
        "router.overlap_score_credit",
        "router.prefill_load_scale",
        "router.temperature",
        "router.queue_threshold",
        "router.queue_policy",
        "router.mode",
        "dynamo",
    ),
    "--router-conditional-disagg": ("router.conditional_disagg",),
    "--migration-limit": ("frontend.migration_limit",),
    "--tokenizer": ("frontend.tokenizer",),
    "--no-tokenizer-fallback": ("frontend.tokenizer",),
}

_GPUS = ("{pool}.gpus", "{pool}.nodes")
_VLLM_GPUS = (*_GPUS, "engine.device")
_VLLM_TP = (*_VLLM_GPUS, "config:pipeline-parallel-size", "config:data-parallel-size")
_MODEL = ("model.path", "model.id", "model.cache.mount_path", "model.revision")
_DRAFT_MODEL = (
    "speculation.draft_model",
    "speculation.draft_revision",
    "model.cache.mount_path",
    "model.cache",
)
_SERVED_NAME = ("model.served_name", "model.id")
_CONFIG_FILE = ("{pool}.config", "engine.config", "engine.kind")

WORKER_FLAGS: Rules = {
    "--model": _MODEL,
    "--model-path": _MODEL,
    "--model-name": _SERVED_NAME,
    "--served-model-name": _SERVED_NAME,
    "--disaggregation-mode": ("{pool}",),
    "--extra-engine-args": _CONFIG_FILE,
    "--config": _CONFIG_FILE,
    "--publish-kv-events": _KV_EVENTS,
    "--dyn-reasoning-parser": ("model.reasoning_parser",),
    "--dyn-tool-call-parser": ("model.tool_call_parser",),
    # With several nodes vLLM gets these as arguments too, repeated from its file.
    "--tensor-parallel-size": ("config:tensor-parallel-size", *_VLLM_TP),
    "--pipeline-parallel-size": ("config:pipeline-parallel-size",),
    "--data-parallel-size": ("config:data-parallel-size",),
}

_LENGTH = ("model.context_length",)
_REVISION = ("model.revision", "model.cache.download")

CONFIG: Mapping[str, Rules] = {
    "trtllm": {
        "tensor_parallel_size": (
            *_GPUS,
            "config:pipeline_parallel_size",
            "config:context_parallel_size",
        ),
        "max_seq_len": _LENGTH,
        "enable_chunked_prefill": (*_LENGTH, "config:max_num_tokens"),
        "revision": _REVISION,
        "kv_cache_config.enable_block_reuse": ("{pool}",),
        "disable_overlap_scheduler": ("{pool}",),
        "cache_transceiver_config": ("kv_transfer",),
        "cache_transceiver_config.backend": ("kv_transfer.backend",),
        "cache_transceiver_config.max_tokens_in_buffer": (
            "kv_transfer.buffer_tokens",
            "config:max_seq_len",
            *_LENGTH,
            "config:kv_cache_config.tokens_per_block",
        ),
        "cache_transceiver_config.kv_transfer_timeout_ms": ("kv_transfer.timeout_ms",),
        "speculative_config": ("speculation",),
        "speculative_config.decoding_type": ("speculation.method",),
        "speculative_config.max_draft_len": ("speculation.draft_tokens",),
        "speculative_config.speculative_model": _DRAFT_MODEL,
    },
    "vllm": {
        "tensor-parallel-size": _VLLM_TP,
        "max-model-len": _LENGTH,
        "revision": _REVISION,
        "enable-prefix-caching": ("{pool}",),
        "kv-events-config": _KV_EVENTS,
        "kv-transfer-config": ("kv_transfer",),
        "kv-transfer-config.kv_buffer_device": ("engine.device",),
        "kv-transfer-config.kv_connector_extra_config": ("kv_transfer.timeout_ms", *_FABRIC),
        "speculative-config": ("speculation",),
        "speculative-config.method": ("speculation.method",),
        "speculative-config.num_speculative_tokens": ("speculation.draft_tokens",),
        "speculative-config.model": _DRAFT_MODEL,
    },
    "sglang": {
        "tp-size": (
            *_GPUS,
            "config:pp-size",
            "config:dp-size",
            "config:enable-dp-attention",
        ),
        "context-length": _LENGTH,
        "revision": _REVISION,
        "kv-events-config": _KV_EVENTS,
        "host": ("{pool}",),
        "disaggregation-transfer-backend": ("kv_transfer.backend", *_TRANSPORT),
        "speculative-algorithm": ("speculation.method",),
        "speculative-draft-model-path": _DRAFT_MODEL,
        "speculative-num-draft-tokens": ("speculation.draft_tokens", "speculation.method"),
        "speculative-num-steps": ("speculation.draft_tokens", "speculation.method"),
        "speculative-eagle-topk": ("speculation.method",),
    },
    "llamacpp": {"n_ctx_seq": _LENGTH},
    "mocker": {
        "engine.worker_type": ("{pool}",),
        "engine.max_model_len": _LENGTH,
        "dynamo.enable_local_indexer": ("{pool}",),
    },
}
