"""The dashboard for one pool of one graph; no query sums over prefill and decode."""

from __future__ import annotations

from panels import GRAPH, POOL, Panel, Row, quantiles, rate, ratio, total

GENERATE = f'dynamo_endpoint="generate", {POOL}'
# The router reports an aggregated pool as decode; the variable's value for it is worker|decode.
ROUTED = f'{GRAPH}, worker_type=~"$pool"'

POOLS = (
    Row(
        "Throughput",
        (
            Panel(
                "Requests",
                "reqps",
                "Requests accepted per worker, health checks included.",
                (rate("dynamo_component_requests_total", GENERATE, "pod"),),
            ),
            Panel(
                "Requests in flight",
                "short",
                "Active requests per worker.",
                (total("dynamo_component_inflight_requests", GENERATE, "pod"),),
            ),
            Panel(
                "Request duration in the worker",
                "s",
                "Prefill: computing the prompt. Decode: KV transfer and generating the output.",
                quantiles("dynamo_component_request_duration_seconds", GENERATE),
            ),
            Panel(
                "Time to first response of the worker",
                "s",
                "Without network and router.",
                quantiles("dynamo_work_handler_time_to_first_response_seconds", POOL),
            ),
            Panel(
                "Worker queue",
                "short",
                "Requests that have not reached the engine yet.",
                (total("dynamo_work_handler_queue_depth", POOL, "pod"),),
            ),
            Panel(
                "Requests rejected by workers",
                "reqps",
                "The worker's queue is full; the router tries another worker.",
                (rate("dynamo_rejection_request_total", POOL, "pod"),),
            ),
        ),
    ),
    Row(
        "Load known to the router",
        (
            Panel(
                "Active blocks",
                "short",
                "KV blocks of running requests per worker.",
                (
                    total(
                        "dynamo_frontend_worker_active_decode_blocks",
                        ROUTED,
                        "worker_id",
                        function="max",
                    ),
                ),
            ),
            Panel(
                "Active prefill tokens",
                "short",
                "Prompt tokens queued or in prefill, per worker.",
                (
                    total(
                        "dynamo_frontend_worker_active_prefill_tokens",
                        ROUTED,
                        "worker_id",
                        function="max",
                    ),
                ),
            ),
            Panel(
                "Router queue",
                "short",
                "Queued requests; only with `router.queue_threshold`.",
                (total("dynamo_frontend_router_queue_pending_requests", ROUTED),),
            ),
        ),
    ),
    Row(
        "KV cache",
        (
            Panel(
                "KV cache usage",
                "percentunit",
                "TensorRT-LLM, vLLM and SGLang only, not the mocker. A fraction, despite its name.",
                (
                    total(
                        "dynamo_component_gpu_cache_usage_percent",
                        POOL,
                        "pod",
                        "dp_rank",
                        function="max",
                    ),
                ),
            ),
            Panel(
                "KV blocks per worker",
                "short",
                "0 until the engine reports its first statistics.",
                (total("dynamo_component_total_blocks", POOL, "pod", "dp_rank", function="max"),),
            ),
            Panel(
                "KV events dropped by engines",
                "ops",
                "The router does not learn about these blocks.",
                (rate("dynamo_component_kv_publisher_engines_dropped_events_total", POOL, "pod"),),
            ),
        ),
    ),
    Row(
        "TensorRT-LLM (--publish-metrics)",
        (
            Panel(
                "KV transfers",
                "ops",
                "Successful transfers, counted by decode. Failed transfers are not counted.",
                (rate("trtllm_kv_transfer_success_total", POOL, "pod"),),
            ),
            Panel(
                "KV transfer time",
                "s",
                "RDMA takes hundredths of a second, TCP seconds.",
                quantiles("trtllm_kv_transfer_latency_seconds", POOL),
            ),
            Panel(
                "KV transfer speed",
                "GBs",
                "Per transfer; NVLink and RDMA reach tens of GB/s.",
                quantiles("trtllm_kv_transfer_speed_gb_s", POOL),
            ),
            Panel(
                "KV transfer throughput",
                "Bps",
                "All transfers of the pool.",
                (rate("trtllm_kv_transfer_bytes_sum", POOL, "pod"),),
            ),
            Panel(
                "Aborted requests",
                "reqps",
                "Canceled by clients or by Dynamo.",
                (rate("trtllm_num_aborted_requests_total", POOL, "pod"),),
            ),
            Panel(
                "Missing KV event IDs",
                "ops",
                "The engine's event buffer overflowed; increase its size.",
                (rate("trtllm_kv_event_id_gap_events_total", POOL, "pod"),),
            ),
        ),
    ),
    Row(
        "vLLM",
        (
            Panel(
                "Running and waiting requests",
                "short",
                "Many waiting requests: too few KV blocks, or too low a limit of sequences.",
                (
                    total("vllm:num_requests_running", POOL).labeled("running"),
                    total("vllm:num_requests_waiting", POOL).labeled("waiting"),
                ),
            ),
            Panel(
                "Preemptions",
                "ops",
                "Sequences evicted for lack of KV blocks and recomputed later.",
                (rate("vllm:num_preemptions_total", POOL, "pod"),),
            ),
            Panel(
                "Prefix-cache hit rate",
                "percentunit",
                "Share of looked-up prompt tokens that were in the cache.",
                (ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", POOL),),
            ),
            Panel(
                "NIXL transfer time",
                "s",
                "Measured by decode, which fetches the blocks.",
                quantiles("vllm:nixl_xfer_time_seconds", POOL),
            ),
            Panel(
                "NIXL transfer throughput",
                "Bps",
                "All transfers of the pool.",
                (rate("vllm:nixl_bytes_transferred_sum", POOL, "pod"),),
            ),
            Panel(
                "NIXL failures",
                "ops",
                "Failed transfers and notifications, and blocks that decode did not fetch in time.",
                tuple(
                    rate(f"vllm:nixl_{what}_total", POOL).labeled(legend)
                    for what, legend in (
                        ("num_failed_transfers", "transfers"),
                        ("num_failed_notifications", "notifications"),
                        ("num_kv_expired_reqs", "expired"),
                    )
                ),
            ),
        ),
    ),
)
