"""The dashboard of all graphs: are they up, within their objectives, and if not, why."""

from __future__ import annotations

from panels import GRAPH, NAME, Panel, Query, Row, by_graph, quantiles, rate, ratio, total

POD = "app_kubernetes_io_component", "pod"
ON_GRAPHS = (
    "* on (namespace, pod) group_left (app_kubernetes_io_instance, app_kubernetes_io_component) "
    f"penstock:pod:info{{{GRAPH}}}"
)

OPERATORS = (
    Row(
        "Is it up",
        (
            Panel(
                "Model ready",
                "bool_yes_no",
                "Whether any frontend can route a request. No line: no frontend knows a model.",
                (total("dynamo_frontend_model_ready", GRAPH, function="max"),),
            ),
            Panel(
                "Targets that answer",
                "short",
                "Processes that answered Prometheus, by component.",
                (total("penstock:target:up", GRAPH, "app_kubernetes_io_component"),),
            ),
            Panel(
                "Alerts",
                "short",
                "Alerts of these rules that fire.",
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
                "1 uses up the budget in a month, 14.4 in two days. Set in objectives.yaml.",
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
                "Requests that the frontend took on. Refused ones are to the right alone.",
                (rate("dynamo_frontend_requests_total", GRAPH, "status", "error_type"),),
            ),
            Panel(
                "Failures by reason",
                "reqps",
                "request.* is the client's fault, backend.unavailable a model that is not ready.",
                (rate("dynamo_frontend_failures_total", GRAPH, "class", "reason"),),
            ),
            Panel(
                "Tokens",
                "short",
                "Prompt and answer tokens a second.",
                (
                    rate("dynamo_frontend_output_tokens_total", GRAPH),
                    rate("dynamo_frontend_input_sequence_tokens_sum", GRAPH).called("prompt"),
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
                "Between tokens",
                "s",
                "Of tokens, not of requests: long answers weigh more.",
                quantiles("dynamo_frontend_inter_token_latency_seconds", GRAPH),
            ),
            Panel(
                "Whole requests",
                "s",
                "Buckets are coarse: 2, 4, 8, 16 s and on.",
                quantiles("dynamo_frontend_request_duration_seconds", GRAPH),
            ),
        ),
    ),
    Row(
        "Queues and the router",
        (
            Panel(
                "Open, and waiting for a first token",
                "short",
                "The second near the first: requests wait, they are not served.",
                (
                    total("dynamo_frontend_active_requests", GRAPH).called("open"),
                    total("dynamo_frontend_queued_requests", GRAPH).called("waiting"),
                ),
            ),
            Panel(
                "Waiting in the router",
                "short",
                "Only with --router-queue-threshold. An aggregated pool's type is decode.",
                (
                    Query(
                        f"penstock:router_queue:requests{{{GRAPH}}}", f"{NAME} {{{{worker_type}}}}"
                    ),
                ),
            ),
            Panel(
                "Time in the frontend, by stage",
                "s",
                "Mean: preprocess is tokenizing, transport_roundtrip the workers.",
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
                "Rising with the requests: the frontend itself is the bottleneck, add one.",
                (rate("dynamo_frontend_event_loop_stall_total", GRAPH, "pod"),),
            ),
            Panel(
                "Prompt tokens found in a cache",
                "percentunit",
                "Share of prompt tokens that a worker did not have to compute.",
                (
                    ratio(
                        "dynamo_frontend_cached_tokens_sum",
                        "dynamo_frontend_input_sequence_tokens_sum",
                        GRAPH,
                    ),
                ),
            ),
            Panel(
                "KV events applied, by status",
                "ops",
                "Anything but ok means that the router's picture of the caches is wrong.",
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
                "Requests that changed their worker, and those that did not survive it.",
                (
                    rate("penstock:migrations:count", GRAPH).called("moved"),
                    rate("penstock:migrations_failed:count", GRAPH).called("lost"),
                ),
            ),
            Panel(
                "Rejections",
                "reqps",
                "Answered 529 because every worker is above its busy threshold.",
                (rate("penstock:rejections:count", GRAPH),),
            ),
            Panel(
                "Restarts seen by Dynamo",
                "short",
                "Further starts of a pod's process within the last half hour.",
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
                "Within the last half hour.",
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
                "Of Deployments; Grove and LeaderWorkerSet have none.",
                (
                    Query(
                        f"penstock:pool_missing:replicas{{{GRAPH}}}",
                        f"{NAME} {{{{app_kubernetes_io_component}}}}",
                    ),
                ),
            ),
            Panel(
                "Memory of the containers",
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
                    "Needs the exporter's pod labels (its default on Kubernetes) and honorLabels.",
                    (
                        Query(
                            f"{by_graph('max', *POD, 'gpu')} ({metric} {ON_GRAPHS})",
                            "{{pod}} GPU {{gpu}}",
                        ),
                    ),
                )
                for title, unit, metric in (
                    ("GPU busy", "percent", "DCGM_FI_DEV_GPU_UTIL"),
                    ("GPU memory", "decmbytes", "DCGM_FI_DEV_FB_USED"),
                    ("GPU errors (Xid)", "short", "DCGM_FI_DEV_XID_ERRORS"),
                )
            ),
        ),
    ),
)
