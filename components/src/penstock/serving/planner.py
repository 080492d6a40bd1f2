"""The planner of a deployment: its configuration, the valid values, and the pools it scales."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from math import isqrt
from typing import Any

from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Role
from penstock.manifests.flags import flag_value
from penstock.serving.deployment import ServingDeployment
from penstock.strict_yaml.loader import load_json
from penstock.text.names import nearest

# The fields of PlannerConfig by the first release that has them. From planner_config.py in the
# wheels of ai-dynamo 1.0.2 to 1.7.0.dev20261026, as are the next two tables.
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
DEFAULT_BUDGET = 8  # max_gpu_budget of PlannerConfig, 1.6.1
TYPES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "object": (dict,),
    "null": (type(None),),
}
LATENCIES = ("ttft_ms", "itl_ms")


def _by_field(releases: Mapping[str, str]) -> Mapping[str, str]:
    return {name: release for release, names in releases.items() for name in names.split()}


# Each field with the first release that has it, and with the first one that restricts its values.
ADDED = _by_field(_ADDED)
CHECKED = {**ADDED, **_by_field(_CHECKED)}


@dataclass(frozen=True, kw_only=True)
class ConfigProblem:
    """A field or value that PlannerConfig rejects or ignores."""

    message: str
    fix: str
    # Dotted paths of the graph YAML to set, with their values.
    graph: Mapping[str, Any] = field(default_factory=dict)
    # Whether the planner ignores the field, rather than exit.
    is_ignored: bool = False
    # The releases of Dynamo with the problem, as specifiers; empty: all.
    releases: str = ""


@cache
def fields() -> Mapping[str, Mapping[str, Any]]:
    """The fields of PlannerConfig by each of their spellings."""
    path = files("penstock.engines.data").joinpath("planner_config.json")
    table = json.loads(path.read_text("utf-8"))["fields"]
    return {
        spelling: {**field, "name": name}
        for name, field in table.items()
        for spelling in {name, *field.get("spellings", ())}
    }


def configurations(deployment: ServingDeployment) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """Each planner's configuration, if the planner has replicas and the manifest holds the JSON."""
    running = (c for c in deployment.with_role(Role.PLANNER) if c.replicas)
    for component in running:
        for launch in component.launches:
            text = flag_value(launch.arguments, "--config") or ""
            try:
                config = load_json(launch.files.get(text, text))
            except ValueError:
                continue  # a file of the image, or YAML
            if isinstance(config, dict):
                yield Location(component.name, "args", ("--config",)), config


def invalid_fields(config: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Unknown fields, invalid values, and fields that contradict each other."""
    for key in config:
        if key in ADDED:
            yield ConfigProblem(
                message=f"PlannerConfig has no field {key} before Dynamo {ADDED[key]}, and ignores "
                "it",
                fix=f"Remove `{key}`, or use an image with Dynamo {ADDED[key]}.",
                is_ignored=True,
                releases=f"<{ADDED[key]}",
            )
        if key not in fields() and (key in REMOVED or key not in ADDED):
            near = nearest(key, fields())
            yield ConfigProblem(
                message=f"PlannerConfig has no field {key} and ignores it",
                fix=f"Use `{near}`." if near else f"Remove `{key}`.",
                is_ignored=True,
                releases=f">={REMOVED[key]}" if key in REMOVED else "",
            )
    invalid = list(_invalid_values(config))
    # Compare fields only if each of them is valid on its own.
    yield from invalid or _contradictions(config)


def _invalid_values(config: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    for key, configured in config.items():
        if key in fields() and (accepted := _accepted(fields()[key], configured)):
            yield ConfigProblem(
                message=f"{key} is {json.dumps(configured)}, but PlannerConfig accepts {accepted}",
                fix=f"Set `{key}` to {accepted}.",
                releases=f">={CHECKED[key]}" if key in CHECKED else "",
            )


def _accepted(field: Mapping[str, Any], configured: Any) -> str:
    """The values that the field accepts, if ``given`` is not one of them; else empty."""
    types = {kind for name in field["types"] for kind in TYPES[name]}
    if not isinstance(configured, tuple(types)) or (
        isinstance(configured, bool) and bool not in types
    ):
        return f"a value of type {' or '.join(field['types'])}"
    if configured is None or isinstance(configured, bool):
        return ""
    if "enum" in field and configured not in field["enum"]:
        return f"one of {', '.join(field['enum'])}"
    if "minimum" in field and configured < field["minimum"]:
        return f"a number of at least {field['minimum']}"
    if "exclusiveMinimum" in field and configured <= field["exclusiveMinimum"]:
        return f"a number above {field['exclusiveMinimum']}"
    if "maximum" in field and configured > field["maximum"]:
        return f"a number of at most {field['maximum']}"
    return ""


def _contradictions(config: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """The validators of PlannerConfig over several fields, and those written by hand."""
    get = partial(value_of, config)
    is_sla = get("optimization_target", "throughput") == "sla"
    throughput = is_sla and bool(get("enable_throughput_scaling", True))
    load = not is_sla or bool(get("enable_load_scaling", False))
    slow = get("throughput_adjustment_interval_seconds", 180)
    fast = get("load_adjustment_interval_seconds", 5)
    buckets = get("fpm_sample_bucket_size", 16)
    hours = get("report_interval_hours", 24.0)
    if any(isinstance(v := get(name, 1), int | float) and v <= 0 for name in LATENCIES):
        yield _problem("ttft_ms and itl_ms must be above 0", "Set both to more than 0.")
    if not (throughput or load):
        yield _problem(
            "enable_throughput_scaling and enable_load_scaling are both off", "Set one to true."
        )
    if throughput and slow <= 0:
        name = "throughput_adjustment_interval_seconds"
        yield _problem(f"{name} must be above 0, got {slow}", f"Set `{name}` to more than 0.")
    if throughput and load and fast >= slow:
        yield _problem(
            f"load_adjustment_interval_seconds ({fast}) must be below "
            f"throughput_adjustment_interval_seconds ({slow})",
            f"Set `load_adjustment_interval_seconds` below {slow}.",
        )
    if isqrt(max(0, buckets)) ** 2 != buckets:
        name = "fpm_sample_bucket_size"
        yield _problem(
            f"{name} must be a perfect square, got {buckets}",
            f"Set `{name}` to a square, such as 16.",
        )
    if get("enable_power_awareness", False) and get("total_gpu_power_limit", None) is None:
        yield _problem(
            "enable_power_awareness needs total_gpu_power_limit", "Set `total_gpu_power_limit`."
        )
    if hours is not None and hours <= 0:
        name = "report_interval_hours"
        fix = f"Set `{name}` to more than 0, or to null."
        yield _problem(f"{name} must be above 0, got {hours}", fix)
    if get("optimization_target", "throughput") == "load":
        yield from _thresholds(config)


def _problem(message: str, fix: str) -> ConfigProblem:
    return ConfigProblem(message=f"PlannerConfig: {message}", fix=fix, releases=">=1.6")


def _thresholds(config: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """The thresholds of `optimization_target: load` for the pools of the mode."""
    mode = str(config.get("mode", "disagg"))
    pools = {
        "prefill_scale_{}_queue_tokens": mode in ("disagg", "prefill"),
        "decode_scale_{}_kv_rate": mode in ("disagg", "decode", "agg"),
    }
    for name in (name for name, has_pool in pools.items() if has_pool):
        high, low = name.format("up"), name.format("down")
        up, down = value_of(config, high, None), value_of(config, low, None)
        if up is None or down is None:
            message = f"optimization_target load needs {high} and {low}"
            yield _problem(message, f"Set `{high}` and `{low}`.")
        elif up <= down:
            message = f"{high} ({up}) must be above {low} ({down})"
            yield _problem(message, f"Set `{high}` above {down}.")


def given_key(config: Mapping[str, Any], name: str) -> str | None:
    """The spelling of a field in the configuration, such as `ttft` for ttft_ms; None if unset."""
    spellings = [key for key in config if fields().get(key, {}).get("name") == name]
    return spellings[-1] if spellings else None


def value_of(config: Mapping[str, Any], name: str, default: Any) -> Any:
    """The value of a field by any of its spellings."""
    key = given_key(config, name)
    return default if key is None else config[key]


def small_budget(deployment: ServingDeployment, config: Mapping[str, Any]) -> ConfigProblem | None:
    """The problem of a max_gpu_budget below what the minimum endpoints of the pools need."""
    budget = value_of(config, "max_gpu_budget", DEFAULT_BUDGET)
    needed = sum(
        c.gpus * least
        for c in planned_pools(deployment, config)
        if (least := minimum_endpoints(c, config))
    )
    if not isinstance(budget, int) or not 0 <= budget < needed:
        return None
    default = "" if "max_gpu_budget" in config else " (the default)"
    return ConfigProblem(
        message=f"max_gpu_budget is {budget}{default}, but the minimum endpoints of the pools need "
        f"{needed} GPUs",
        fix=f"Set `max_gpu_budget` to at least {needed}, or to -1 for no limit.",
        graph={"planner.max_gpus": needed},
    )


def planned_pools(deployment: ServingDeployment, config: Mapping[str, Any]) -> list[Component]:
    """The components that the planner scales in its mode."""
    roles = {
        "prefill": (Role.PREFILL,),
        "decode": (Role.DECODE,),
        "agg": (Role.WORKER, Role.DECODE),
    }.get(str(config.get("mode")), (Role.PREFILL, Role.DECODE))
    return [c for c in deployment.components if c.role in roles]


def minimum_endpoints(component: Component, config: Mapping[str, Any]) -> int:
    """The number of replicas below which the planner does not scale the component."""
    role = {Role.PREFILL: "prefill_", Role.DECODE: "decode_"}.get(component.role, "")
    minimum = value_of(config, f"{role}min_endpoint", None)
    least = value_of(config, "min_endpoint", 1) if minimum is None else minimum
    return least if isinstance(least, int) else 0
