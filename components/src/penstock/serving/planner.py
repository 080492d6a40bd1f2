"""Dynamo's planner of a deployment: its configuration, what that may hold, and what it scales."""

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
from penstock.manifests.flags import value
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment

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


@dataclass(frozen=True, kw_only=True)
class ConfigProblem:
    """What PlannerConfig refuses or ignores."""

    message: str
    fix: str
    # Dotted paths of the graph YAML to set, with their values.
    graph: Mapping[str, Any] = field(default_factory=dict)


@cache
def fields() -> Mapping[str, Mapping[str, Any]]:
    """The fields of PlannerConfig by each of their spellings."""
    path = files("penstock.engines.data").joinpath("planner_config.json")
    found = json.loads(path.read_text("utf-8"))["fields"]
    return {
        spelling: {**field, "name": name}
        for name, field in found.items()
        for spelling in {name, *field.get("spellings", ())}
    }


def configurations(deployment: ServingDeployment) -> Iterator[tuple[Location, Mapping[str, Any]]]:
    """Each running planner's configuration, where the manifest itself holds it."""
    running = (c for c in deployment.with_role(Role.PLANNER) if c.replicas)
    for component in running:
        for launch in component.launches:
            text = value(launch.arguments, "--config") or ""
            try:
                said = json.loads(launch.files.get(text, text))
            except ValueError:
                continue  # a file of the image, or YAML
            if isinstance(said, dict):
                yield Location(component.name, "args", ("--config",)), said


def invalid_fields(config: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Unknown fields, values that a field does not take, and fields that contradict each other."""
    for key in (key for key in config if key not in fields()):
        near = nearest(key, fields())
        yield ConfigProblem(
            message=f"PlannerConfig has no {key}, and ignores it",
            fix=f"Use `{near}`." if near else f"Remove `{key}`.",
        )
    refused = list(_refused(config))
    # Relations only between values that are valid on their own.
    for message, fix in refused or _contradictions(config):
        yield ConfigProblem(message=message, fix=fix)


def _refused(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Message and fix of each value that its field does not take."""
    for key, said in config.items():
        if key in fields() and (takes := _refusal(fields()[key], said)):
            message = f"{key} is {json.dumps(said)}, and PlannerConfig takes {takes}"
            yield message, "give it such a value"


def _refusal(field: Mapping[str, Any], said: Any) -> str:
    """What the field takes, where ``said`` is not that; empty where it is."""
    taken = {kind for name in field["types"] for kind in TYPES[name]}
    if not isinstance(said, tuple(taken)) or (isinstance(said, bool) and bool not in taken):
        return " or ".join(field["types"])
    if said is None or isinstance(said, bool):
        return ""
    if "enum" in field and said not in field["enum"]:
        return ", ".join(field["enum"])
    if "minimum" in field and said < field["minimum"]:
        return f"at least {field['minimum']}"
    if "exclusiveMinimum" in field and said <= field["exclusiveMinimum"]:
        return f"more than {field['exclusiveMinimum']}"
    if "maximum" in field and said > field["maximum"]:
        return f"at most {field['maximum']}"
    return ""


def _contradictions(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What PlannerConfig refuses of several fields together, and of single numbers by hand."""
    said = partial(value_of, config)
    is_sla = said("optimization_target", "throughput") == "sla"
    throughput = is_sla and bool(said("enable_throughput_scaling", True))
    load = not is_sla or bool(said("enable_load_scaling", False))
    slow = said("throughput_adjustment_interval_seconds", 180)
    quick = said("load_adjustment_interval_seconds", 5)
    buckets = said("fpm_sample_bucket_size", 16)
    hours = said("report_interval_hours", 24.0)
    found = []
    if any(isinstance(v := said(name, 1), int | float) and v <= 0 for name in LATENCIES):
        found.append("ttft_ms and itl_ms must be more than 0")
    if not (throughput or load):
        found.append("one of enable_throughput_scaling and enable_load_scaling must be on")
    if throughput and slow <= 0:
        found.append("throughput_adjustment_interval_seconds must be more than 0")
    if throughput and load and quick >= slow:
        found.append(
            f"load_adjustment_interval_seconds, {quick}, must be less than "
            f"throughput_adjustment_interval_seconds, {slow}"
        )
    if isqrt(max(0, buckets)) ** 2 != buckets:
        found.append("fpm_sample_bucket_size must be a perfect square")
    if said("enable_power_awareness", False) and said("total_gpu_power_limit", None) is None:
        found.append("enable_power_awareness needs total_gpu_power_limit")
    if hours is not None and hours <= 0:
        found.append("report_interval_hours must be more than 0, or null")
    if said("optimization_target", "throughput") == "load":
        found += _thresholds(config)
    return ((f"PlannerConfig: {text}", "correct it") for text in found)


def _thresholds(config: Mapping[str, Any]) -> Iterator[str]:
    """Those of optimization_target load, by the pools of the mode."""
    mode = str(config.get("mode", "disagg"))
    pools = {
        "prefill_scale_{}_queue_tokens": mode in ("disagg", "prefill"),
        "decode_scale_{}_kv_rate": mode in ("disagg", "decode", "agg"),
    }
    for name in (name for name, is_there in pools.items() if is_there):
        up, down = (value_of(config, name.format(way), None) for way in ("up", "down"))
        if up is None or down is None:
            yield f"optimization_target load needs {name.format('up')} and {name.format('down')}"
        elif up <= down:
            yield f"{name.format('up')} must be more than {name.format('down')}"


def value_of(config: Mapping[str, Any], name: str, default: Any) -> Any:
    """The value of a field by any of its spellings."""
    found = [said for key, said in config.items() if fields().get(key, {}).get("name") == name]
    return found[-1] if found else default


def small_budget(deployment: ServingDeployment, config: Mapping[str, Any]) -> ConfigProblem | None:
    """max_gpu_budget below what the fewest endpoints of the planned pools take."""
    budget = value_of(config, "max_gpu_budget", DEFAULT_BUDGET)
    needed = sum(
        c.gpus * least
        for c in planned_pools(deployment, config)
        if (least := fewest_endpoints(c, config))
    )
    if not isinstance(budget, int) or not 0 <= budget < needed:
        return None
    unset = "" if "max_gpu_budget" in config else ", its default"
    return ConfigProblem(
        message=f"max_gpu_budget is {budget}{unset}, and the fewest endpoints take {needed} GPUs",
        fix="say how many GPUs the pools may take, -1 for any number",
        graph={"planner.max_gpus": needed},
    )


def planned_pools(deployment: ServingDeployment, config: Mapping[str, Any]) -> list[Component]:
    roles = {
        "prefill": (Role.PREFILL,),
        "decode": (Role.DECODE,),
        "agg": (Role.WORKER, Role.DECODE),
    }.get(str(config.get("mode")), (Role.PREFILL, Role.DECODE))
    return [c for c in deployment.components if c.role in roles]


def fewest_endpoints(component: Component, config: Mapping[str, Any]) -> int:
    role = {Role.PREFILL: "prefill_", Role.DECODE: "decode_"}.get(component.role, "")
    own = value_of(config, f"{role}min_endpoint", None)
    least = value_of(config, "min_endpoint", 1) if own is None else own
    return least if isinstance(least, int) else 0
