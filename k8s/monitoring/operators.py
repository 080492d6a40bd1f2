"""The dashboard for all graphs: availability, objectives, and causes of problems."""

from __future__ import annotations

from panels import GRAPH, NAME, Panel, Query, Row, by_graph, quantiles, rate, ratio, total

POD = "app_kubernetes_io_component", "pod"
ON_GRAPHS = (
    "* on (namespace, pod) group_left (app_kubernetes_io_instance, app_kubernetes_io_component) "
    f"penstock:pod:info{{{GRAPH}}}"
)

OPERATORS = (
    Row(
        "Availability",
        (
            Panel(
                "Model ready",
                "bool_yes_no",
                "Whether any frontend can route a request. No line: no frontend knows a model.",
                (total("dynamo_frontend_model_ready", GRAPH, function="max"),),
            ),
            Panel(
                "Reachable targets",
                "short",
                "Processes that respond to scrapes, by component.",
                (total("penstock:target:up", GRAPH, "app_kubernetes_io_component"),),
            ),
            Panel(
                "Alerts",
                "short",
                "Firing alerts of penstock's rules.",
                (
                    Query(
                        "sum by (alertname, app_kubernetes_io_instance) "
                        f'(ALERTS{{alertname=~"Penstock.*", alertstate="firing", {GRAPH}}})',
                        "{{app_kubernetes_io_instance}} {{alertname}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Objectives",
        tuple(
            Panel(
                f"Burn rate: {slo}",
                "x",
                "At 1 the error budget lasts a month, at 14.4 two days. See objectives.yaml.",
                tuple(
                    Query(
                        f'penstock:slo_burn:rate{window}{{slo="{slo}", {GRAPH}}}',
                        f"{NAME} {window}",
                    )
                    for window in ("5m", "1h", "6h", "3d")
                ),
            )
            for slo in ("availability", "first-token", "inter-token")
        ),
    ),
    Row(
        "Traffic and errors",
        (
            Panel(
                "Requests by outcome",
                "reqps",
                "Accepted requests. Rejected requests appear only in the panel to the right.",
                (rate("dynamo_frontend_requests_total", GRAPH, "status", "error_type"),),
            ),
            Panel(
                "Failures by reason",
                "reqps",
                "request.*: client errors; backend.unavailable: the model is not ready.",
                (rate("dynamo_frontend_failures_total", GRAPH, "class", "reason"),),
            ),
            Panel(
                "Tokens",
                "short",
                "Prompt and output tokens per second.",
                (
                    rate("dynamo_frontend_output_tokens_total", GRAPH),
                    rate("dynamo_frontend_input_sequence_tokens_sum", GRAPH).labeled("prompt"),
                ),
            ),
        ),
    ),
    Row(
        "Latency",
        (
            Panel(
                "Time to first token",
                "s",
                "From arrival at the frontend to the first token.",
                quantiles("dynamo_frontend_time_to_first_token_seconds", GRAPH),
            ),
            Panel(
                "Inter-token latency",
                "s",
                "Over tokens, not requests: long outputs weigh more.",
                quantiles("dynamo_frontend_inter_token_latency_seconds", GRAPH),
            ),
            Panel(
                "Request duration",
                "s",
                "Buckets are coarse: 2, 4, 8, 16 s and so on.",
                quantiles("dynamo_frontend_request_duration_seconds", GRAPH),
            ),
        ),
    ),
    Row(
        "Queues and the router",
        (
            Panel(
                "Active requests",
                "short",
                "If waiting is close to active, requests are queued rather than served.",
                (
                    total("dynamo_frontend_active_requests", GRAPH).labeled("active"),
                    total("dynamo_frontend_queued_requests", GRAPH).labeled(
                        "waiting for the first token"
                    ),
                ),
            ),
            Panel(
                "Router queue",
                "short",
                "Only with `router.queue_threshold`. Type decode includes aggregated pools.",
                (
                    Query(
                        f"penstock:router_queue:requests{{{GRAPH}}}", f"{NAME} {{{{worker_type}}}}"
                    ),
                ),
            ),
            Panel(
                "Frontend time by stage",
                "s",
                "Mean. preprocess: tokenization; transport_roundtrip: the workers.",
                (
                    ratio(
                        "dynamo_frontend_stage_duration_seconds_sum",
                        "dynamo_frontend_stage_duration_seconds_count",
                        GRAPH,
                        "stage",
                    ),
                ),
            ),
            Panel(
                "Event-loop stalls",
                "ops",
                "If stalls rise with requests, the frontend is the bottleneck; add a replica.",
                (rate("dynamo_frontend_event_loop_stall_total", GRAPH, "pod"),),
            ),
            Panel(
                "Prefix-cache hit rate",
                "percentunit",
                "Share of prompt tokens that workers found in their KV cache.",
                (
                    ratio(
                        "dynamo_frontend_cached_tokens_sum",
                        "dynamo_frontend_input_sequence_tokens_sum",
                        GRAPH,
                    ),
                ),
            ),
            Panel(
                "Applied KV events by status",
                "ops",
                "Any status other than ok means that the router's index of the caches is wrong.",
                (rate("dynamo_component_kv_cache_events_applied", GRAPH, "event_type", "status"),),
            ),
        ),
    ),
    Row(
        "Migrations, rejections, restarts",
        (
            Panel(
                "Migrations and lost requests",
                "reqps",
                "Requests that migrated to another worker, and requests whose migration failed.",
                (
                    rate("penstock:migrations:count", GRAPH).labeled("migrated"),
                    rate("penstock:migrations_failed:count", GRAPH).labeled("lost"),
                ),
            ),
            Panel(
                "Rejections",
                "reqps",
                "Requests rejected because all workers are overloaded: they are at their "
                "request_limit and queue_limit, or above a busy threshold. The status is "
                "frontend.overload_status: 429 unless set.",
                (rate("penstock:rejections:count", GRAPH),),
            ),
            Panel(
                "Process restarts",
                "short",
                "Restarts of a pod's process within the last 30 minutes, from Dynamo's metrics.",
                (
                    Query(
                        f"{by_graph('count', *POD)} (count_over_time("
                        f"dynamo_component_uptime_seconds{{{GRAPH}}}[30m])) - 1",
                        "{{pod}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Pods and GPUs (kube-state-metrics, cAdvisor, DCGM exporter)",
        (
            Panel(
                "Container restarts",
                "short",
                "Within the last 30 minutes.",
                (
                    Query(
                        f"{by_graph('sum', *POD)} ("
                        f"increase(kube_pod_container_status_restarts_total[30m]) {ON_GRAPHS})",
                        "{{pod}}",
                    ),
                ),
            ),
            Panel(
                "Missing replicas",
                "short",
                "Of Deployments; not available with Grove and LeaderWorkerSet.",
                (
                    Query(
                        f"penstock:pool_missing:replicas{{{GRAPH}}}",
                        f"{NAME} {{{{app_kubernetes_io_component}}}}",
                    ),
                ),
            ),
            Panel(
                "Container memory",
                "bytes",
                "Working set, /dev/shm included.",
                (
                    Query(
                        f"{by_graph('max', *POD)} ("
                        f'container_memory_working_set_bytes{{container="main"}} {ON_GRAPHS})',
                        "{{pod}}",
                    ),
                ),
            ),
            *(
                Panel(
                    title,
                    unit,
                    "Needs the exporter's pod labels (the default on Kubernetes) and honorLabels.",
                    (
                        Query(
                            f"{by_graph('max', *POD, 'gpu')} ({metric} {ON_GRAPHS})",
                            "{{pod}} GPU {{gpu}}",
                        ),
                    ),
                )
                for title, unit, metric in (
                    ("GPU utilization", "percent", "DCGM_FI_DEV_GPU_UTIL"),
                    ("GPU memory", "decmbytes", "DCGM_FI_DEV_FB_USED"),
                    ("GPU errors (Xid)", "short", "DCGM_FI_DEV_XID_ERRORS"),
                )
            ),
        ),
    ),
)
