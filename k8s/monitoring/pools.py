"""The dashboard of one pool of one graph: prefill and decode never meet in a sum."""

from __future__ import annotations

from panels import GRAPH, POOL, Panel, Row, quantiles, rate, ratio, total

GENERATE = f'dynamo_endpoint="generate", {POOL}'
# The router calls an aggregated pool decode; the variable's value for it is worker|decode.
ROUTED = f'{GRAPH}, worker_type=~"$pool"'

POOLS = (
    Row(
        "Throughput",
        (
            Panel(
                "Requests",
                "reqps",
                "Requests that each worker took, with the health check's own.",
                (rate("dynamo_component_requests_total", GENERATE, "pod"),),
            ),
            Panel(
                "In flight",
                "short",
                "Requests that each worker has.",
                (total("dynamo_component_inflight_requests", GENERATE, "pod"),),
            ),
            Panel(
                "Duration of a request in the worker",
                "s",
                "In prefill: reading the prompt. In decode: writing the answer, transfer included.",
                quantiles("dynamo_component_request_duration_seconds", GENERATE),
            ),
            Panel(
                "First response of a worker",
                "s",
                "Without network and router.",
                quantiles("dynamo_work_handler_time_to_first_response_seconds", POOL),
            ),
            Panel(
                "Requests waiting in the worker's queue",
                "short",
                "Before they reach the engine.",
                (total("dynamo_work_handler_queue_depth", POOL, "pod"),),
            ),
            Panel(
                "Requests that workers turned away",
                "reqps",
                "Queue full; the router goes elsewhere.",
                (rate("dynamo_rejection_request_total", POOL, "pod"),),
            ),
        ),
    ),
    Row(
        "Load as the router sees it",
        (
            Panel(
                "Active blocks",
                "short",
                "KV blocks of running requests, by worker.",
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
                "Prompt tokens to read",
                "short",
                "By worker.",
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
                "Waiting in the router",
                "short",
                "Only with --router-queue-threshold.",
                (total("dynamo_frontend_router_queue_pending_requests", ROUTED),),
            ),
        ),
    ),
    Row(
        "KV cache",
        (
            Panel(
                "KV cache in use",
                "percentunit",
                "TensorRT-LLM, vLLM, SGLang; the mocker has none. A fraction in spite of its name.",
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
                "KV blocks of a worker",
                "short",
                "0 until the engine's first statistics.",
                (total("dynamo_component_total_blocks", POOL, "pod", "dp_rank", function="max"),),
            ),
            Panel(
                "KV events that engines dropped",
                "ops",
                "The router does not hear of those blocks.",
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
                "Counted by decode, of successes alone: a failing transfer is one that is missing.",
                (rate("trtllm_kv_transfer_success_total", POOL, "pod"),),
            ),
            Panel(
                "KV transfer: time",
                "s",
                "RDMA needs hundredths of a second, TCP seconds.",
                quantiles("trtllm_kv_transfer_latency_seconds", POOL),
            ),
            Panel(
                "KV transfer: speed",
                "GBs",
                "One transfer; NVLink and RDMA reach tens.",
                quantiles("trtllm_kv_transfer_speed_gb_s", POOL),
            ),
            Panel(
                "KV transferred",
                "Bps",
                "All transfers of the pool.",
                (rate("trtllm_kv_transfer_bytes_sum", POOL, "pod"),),
            ),
            Panel(
                "Aborted requests",
                "reqps",
                "Cancelled by clients or by Dynamo.",
                (rate("trtllm_num_aborted_requests_total", POOL, "pod"),),
            ),
            Panel(
                "KV event ids missing",
                "ops",
                "The engine's event buffer ran over: make it larger.",
                (rate("trtllm_kv_event_id_gap_events_total", POOL, "pod"),),
            ),
        ),
    ),
    Row(
        "vLLM",
        (
            Panel(
                "Running and waiting",
                "short",
                "Waiting for long: too few KV blocks or sequences.",
                (
                    total("vllm:num_requests_running", POOL).called("running"),
                    total("vllm:num_requests_waiting", POOL).called("waiting"),
                ),
            ),
            Panel(
                "Preemptions",
                "ops",
                "Sequences thrown out for lack of KV blocks, and computed again.",
                (rate("vllm:num_preemptions_total", POOL, "pod"),),
            ),
            Panel(
                "Prefix cache hits",
                "percentunit",
                "Share of looked-up prompt tokens.",
                (ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", POOL),),
            ),
            Panel(
                "NIXL transfer: time",
                "s",
                "Counted by decode, which fetches.",
                quantiles("vllm:nixl_xfer_time_seconds", POOL),
            ),
            Panel(
                "NIXL transferred",
                "Bps",
                "All transfers of the pool.",
                (rate("vllm:nixl_bytes_transferred_sum", POOL, "pod"),),
            ),
            Panel(
                "NIXL failures",
                "ops",
                "Transfers, notifications, and blocks that decode did not fetch in time.",
                tuple(
                    rate(f"vllm:nixl_{what}_total", POOL).called("{legend}")
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
