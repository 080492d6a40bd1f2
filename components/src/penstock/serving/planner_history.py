"""The fields of PlannerConfig that only some releases of Dynamo have or check.

From planner_config.py in the wheels of ai-dynamo 1.0.2 to 1.7.0.dev20261026.
"""

from __future__ import annotations

from collections.abc import Mapping

_ADDED = {
    "1.1": "fpm_sample_bucket_size live_dashboard_port max_num_fpm_samples optimization_target "
    "report_interval_hours report_output_dir",
    "1.2": "advisory aic_interpolation itl_ms load_adjustment_interval_seconds min_gpu_budget "
    "report_filename throughput_adjustment_interval_seconds ttft_ms",
    "1.3": "aic_perf_model decode_scale_down_kv_rate decode_scale_up_kv_rate "
    "metric_pulling_prometheus_ca_bundle metric_pulling_prometheus_extra_query_params "
    "metric_pulling_prometheus_ssl_verify metric_pulling_prometheus_token "
    "metric_pulling_prometheus_token_file plugin_registration prefill_scale_down_queue_tokens "
    "prefill_scale_up_queue_tokens report_write_gzip_log scheduling speculative_nextn",
    "1.5": "control_api_port decode_min_endpoint enable_power_awareness "
    "metric_pulling_prometheus_request_timeout_seconds prefill_min_endpoint total_gpu_power_limit",
    "1.6": "ais_perf_model max_throughput_scaling_replicas",
    "1.7": "batch_scheduling enable_runtime_reconfiguration runtime_warmup_trace_dir",
}
# The first release that ignores a field.
REMOVED = {
    "load_learning_window": "1.1",
    "load_router_metrics_url": "1.1",
    "no_correction": "1.1",
    "no_operation": "1.2",
    "load_metric_samples": "1.3",
    "aic_perf_model": "1.6",
}
# The first release that restricts the values of a field, if not the first that has it.
_CHECKED = {
    "1.3": "load_adjustment_interval_seconds",
    "1.5": "min_endpoint",
    "1.6": "fpm_sample_bucket_size load_predictor load_scaling_down_sensitivity "
    "max_num_fpm_samples prophet_window_size",
}


def _by_field(releases: Mapping[str, str]) -> Mapping[str, str]:
    return {name: release for release, names in releases.items() for name in names.split()}


# Each field with the first release that has it, and with the first one that restricts its values.
ADDED = _by_field(_ADDED)
CHECKED = {**ADDED, **_by_field(_CHECKED)}
