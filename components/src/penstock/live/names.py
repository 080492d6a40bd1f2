"""Names of the metrics that live views read, by engine.

Read from processes that run locally (Dynamo 1.6.1's frontend and worker runtime, mocker, llama.cpp
worker, vLLM on a CPU); the names of TensorRT-LLM and SGLang are those that `k8s/monitoring` uses,
or that their metrics collectors define.
"""

from __future__ import annotations

from penstock.local.load import (
    IN_FLIGHT,
    KV_USAGE,
    ROUTER_QUEUE,
    RUNNING,
    WAITING,
    WORKER_QUEUE,
    WORKER_REQUESTS,
)
from penstock.serving.frontend_metrics import CACHED, FRONTEND, ITL, PROMPT, REQUESTS, TTFT

STARTED = f"{FRONTEND}requests_started_total"
OUTPUT = f"{FRONTEND}output_tokens_total"
ACTIVE = f"{FRONTEND}active_requests"
ADMITTED = f"{FRONTEND}router_admission_received_total"
LAST_TTFT = f"{FRONTEND}worker_last_time_to_first_token_seconds"
LAST_ITL = f"{FRONTEND}worker_last_inter_token_latency_seconds"

ENGINE_RUNNING = (*RUNNING, "llamacpp_requests_running")
ENGINE_WAITING = (*WAITING, "llamacpp_requests_waiting")
# Gauges, from the engine's own to the one of Dynamo's runtime.
ENGINE_KV_USAGE = (*KV_USAGE, "dynamo_component_gpu_cache_usage_percent")
HITS = ("vllm:prefix_cache_hits_total", "llamacpp_cached_tokens_total")
QUERIES = ("vllm:prefix_cache_queries_total", "llamacpp_prompt_tokens_total")
HIT_RATE = ("trtllm_kv_cache_hit_rate", "sglang:cache_hit_rate")
GENERATED = (
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "llamacpp_generated_tokens_total",
)
# Bytes that decode workers have read from prefill workers.
KV_BYTES = (
    "llamacpp_kv_transfer_bytes_total",
    "vllm:nixl_bytes_transferred_sum",
    "trtllm_kv_transfer_bytes_sum",
)
READ = (
    *(TTFT, ITL, CACHED, PROMPT, REQUESTS, STARTED, OUTPUT, ACTIVE, ADMITTED),
    *(LAST_TTFT, LAST_ITL, ROUTER_QUEUE, IN_FLIGHT, WORKER_REQUESTS, WORKER_QUEUE),
    *(*ENGINE_RUNNING, *ENGINE_WAITING, *ENGINE_KV_USAGE),
    *(*HITS, *QUERIES, *HIT_RATE, *GENERATED, *KV_BYTES),
)
