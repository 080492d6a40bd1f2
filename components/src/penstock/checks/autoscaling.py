"""Rules of autoscalers: the planner's configuration, and how far they may go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, partial
from importlib.resources import files
from math import isqrt
from typing import Any

from penstock.checks.finding import Fix, Found, Level
from penstock.checks.rule import Rule
from penstock.checks.subject import WORKERS, Subject
from penstock.engines.settings import At
from penstock.manifests.deployment import Component, Engine, Role
from penstock.manifests.flags import value
from penstock.manifests.scalers import Scaler, adapter_name, scalers

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


def configs(subject: Subject) -> Iterator[tuple[At, Mapping[str, Any]]]:
    """Each running planner's configuration, where the manifest itself holds it."""
    running = (c for c in subject.deployment.with_role(Role.PLANNER) if c.replicas)
    for component in running:
        for launch in component.launches:
            text = value(launch.arguments, "--config") or ""
            try:
                said = json.loads(launch.files.get(text, text))
            except ValueError:
                continue  # a file of the image, or YAML
            if isinstance(said, dict):
                yield At(component.name, "args", ("--config",)), said


def not_a_configuration(subject: Subject) -> Iterable[Found]:
    for at, config in configs(subject):
        for key in (key for key in config if key not in fields()):
            near = get_close_matches(key, fields(), n=1)
            words = f"perhaps you meant {near[0]}" if near else "remove it"
            message = f"PlannerConfig has no {key}, and ignores it"
            yield Found(at=at, message=message, fix=Fix(words=words))
        refused = list(_refused(config))
        # Relations only between values that are what they should be.
        for text, fix in refused or _contradictions(config):
            yield Found(at=at, message=text, fix=Fix(words=fix))


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
    said = partial(_said, config)
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
        up, down = (_said(config, name.format(way), None) for way in ("up", "down"))
        if up is None or down is None:
            yield f"optimization_target load needs {name.format('up')} and {name.format('down')}"
        elif up <= down:
            yield f"{name.format('up')} must be more than {name.format('down')}"


def _said(config: Mapping[str, Any], name: str, default: Any) -> Any:
    """The value of a field by any of its spellings."""
    found = [said for key, said in config.items() if fields().get(key, {}).get("name") == name]
    return found[-1] if found else default


def budget_too_small(subject: Subject) -> Iterable[Found]:
    for at, config in configs(subject):
        budget = _said(config, "max_gpu_budget", DEFAULT_BUDGET)
        needed = sum(
            c.gpus * least
            for c in planned_pools(subject, config)
            if (least := fewest_endpoints(c, config))
        )
        if isinstance(budget, int) and 0 <= budget < needed:
            unset = "" if "max_gpu_budget" in config else ", its default"
            yield Found(
                at=at,
                message=f"max_gpu_budget is {budget}{unset}, and the fewest endpoints take "
                f"{needed} GPUs",
                fix=Fix(
                    words="say how many GPUs the pools may take, -1 for any number",
                    graph={"planner.max_gpus": needed},
                ),
            )


def planned_pools(subject: Subject, config: Mapping[str, Any]) -> list[Component]:
    roles = {
        "prefill": (Role.PREFILL,),
        "decode": (Role.DECODE,),
        "agg": (Role.WORKER, Role.DECODE),
    }.get(str(config.get("mode")), (Role.PREFILL, Role.DECODE))
    return [c for c in subject.deployment.components if c.role in roles]


def fewest_endpoints(component: Component, config: Mapping[str, Any]) -> int:
    role = {Role.PREFILL: "prefill_", Role.DECODE: "decode_"}.get(component.role, "")
    own = _said(config, f"{role}min_endpoint", None)
    least = _said(config, "min_endpoint", 1) if own is None else own
    return least if isinstance(least, int) else 0


def latencies_unread(subject: Subject) -> Iterable[Found]:
    for at, config in configs(subject):
        target = _said(config, "optimization_target", "throughput")
        said = [name for name in LATENCIES if _said(config, name, None) is not None]
        if target != "sla" and said:
            yield Found(
                at=at,
                message=f"{' and '.join(said)} with optimization_target {target}, which does not "
                "read them",
                fix=Fix(
                    words="set optimization_target sla",
                    graph={"planner.config.optimization_target": "sla"},
                ),
            )


def beyond_the_nodes(subject: Subject) -> Iterable[Found]:
    if not subject.gpu_nodes or not subject.gpus_per_node:
        return
    have = subject.gpu_nodes * subject.gpus_per_node
    owners = scalers(document.value for document in subject.documents)
    most, names = 0, []
    for component in subject.deployment.components:
        scaler = owners.get(adapter_name(subject.deployment.name, component.name), Scaler())
        goes_to = component.replicas if scaler.most is None else scaler.most
        most += component.gpus * goes_to
        if component.role in WORKERS and goes_to > component.replicas:
            names.append(component.name)
    if names and most > have:
        yield Found(
            at=At(names[0], "field", ("scalingAdapter",)),
            message=f"autoscaling of {' and '.join(names)} goes up to {most} GPUs, and "
            f"hardware.nodes {subject.gpu_nodes} of {subject.gpus_per_node} have {have}",
            fix=Fix(words="lower autoscaling.max, or name the nodes that a peak may take"),
        )
    for _, config in configs(subject):
        budget = _said(config, "max_gpu_budget", DEFAULT_BUDGET)
        if isinstance(budget, int) and budget > have:
            yield Found(
                at=At("", "graph", ("planner", "max_gpus")),
                message=f"the planner may take {budget} GPUs, and hardware.nodes "
                f"{subject.gpu_nodes} of {subject.gpus_per_node} have {have}",
                fix=Fix(words=f"at most {have}", graph={"planner.max_gpus": have}),
            )


def signal_off(subject: Subject) -> Iterable[Found]:
    planned = any(not config.get("advisory") for _, config in configs(subject))
    for worker in subject.workers:
        reads = "the planner follows" if planned else "the autoscaler's signal is one of"
        published = worker.env("DYN_TRTLLM_PUBLISH_METRICS")
        if (
            worker.is_trtllm
            and worker.get("enable_iter_perf_stats") is False
            and (planned or published)
        ):
            yield Found(
                at=worker.config("enable_iter_perf_stats"),
                message=f"{worker.name} publishes no iteration statistics, and {reads} them",
                fix=Fix(words="switch them on", config={"enable_iter_perf_stats": True}),
            )
        elif planned and worker.engine is Engine.VLLM and worker.get("scheduler-cls"):
            yield Found(
                at=worker.config("scheduler-cls"),
                message=f"{worker.name} has a scheduler of its own, which publishes nothing that "
                "the planner follows",
                fix=Fix(words="leave the scheduler to Dynamo", config={"scheduler-cls": None}),
            )


RULES = (
    Rule(
        id="PS811",
        title="no planner configuration",
        level=Level.ERROR,
        cause="A key that PlannerConfig does not have, or values that it does not take, alone or "
        "together.",
        effect="The first is ignored without a word, with the others the planner ends.",
        remedy="Use the fields of PlannerConfig.",
        source="dynamo/planner/config/planner_config.py 1.6.1",
        judge=not_a_configuration,
    ),
    Rule(
        id="PS812",
        title="a planner without GPUs to plan",
        level=Level.ERROR,
        cause="max_gpu_budget, 8 where nobody says it, is less than the fewest endpoints take.",
        effect="The planner refuses its configuration and ends.",
        remedy="Say how many GPUs the pools may take.",
        source="dynamo/planner/core/base.py 1.6.1 (_runtime_configuration_errors)",
        judge=budget_too_small,
    ),
    Rule(
        id="PS813",
        title="latencies that no planner reads",
        level=Level.WARNING,
        cause="ttft_ms and itl_ms are set, and optimization_target, throughput by default, is not "
        "sla.",
        effect="The planner scales by static thresholds; the latencies are not held.",
        remedy="optimization_target: sla.",
        source="dynamo/planner/config/planner_config.py 1.6.1 (_validate_config)",
        judge=latencies_unread,
    ),
    Rule(
        id="PS814",
        title="autoscaling beyond the nodes",
        level=Level.WARNING,
        cause="The autoscalers' bounds add up to more GPUs than hardware.nodes has.",
        effect="Pods stay Pending at the peak; the planner has stood still for an hour over one.",
        remedy="Lower the bounds, or add nodes.",
        source="dynamo#14251",
        judge=beyond_the_nodes,
    ),
    Rule(
        id="PS815",
        title="an autoscaler without its signal",
        level=Level.WARNING,
        cause="TensorRT-LLM's iteration statistics are switched off, or vLLM's scheduler is not "
        "Dynamo's, beside an autoscaler that reads what they publish.",
        effect="It sees no load: the pool stays as it is, whatever comes.",
        remedy="Leave the statistics on; remove the scheduler.",
        source="dynamo/trtllm/publisher.py and dynamo/vllm/args.py 1.6.1",
        judge=signal_off,
    ),
)
