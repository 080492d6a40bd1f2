"""Rules about autoscaling: the planner's configuration, and the limits of autoscalers."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.serving.deployment import ServingDeployment
from penstock.serving.planner import (
    DEFAULT_BUDGET,
    LATENCIES,
    configurations,
    invalid_fields,
    small_budget,
    value_of,
)
from penstock.serving.worker import WORKERS


def invalid_configuration(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, config in configurations(deployment):
        for problem in invalid_fields(config):
            yield RuleResult(
                location=location,
                message=problem.message,
                fix=Fix(text=problem.fix),
                level=Level.WARNING if problem.is_ignored else None,
                versions=Versions(dynamo=problem.releases) if problem.releases else None,
            )


def budget_too_small(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, config in configurations(deployment):
        if problem := small_budget(deployment, config):
            fix = Fix(text=problem.fix, graph=problem.graph)
            yield RuleResult(location=location, message=problem.message, fix=fix)


def ignored_latency_targets(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, config in configurations(deployment):
        target = value_of(config, "optimization_target", "throughput")
        latencies = [name for name in LATENCIES if value_of(config, name, None) is not None]
        if target != "sla" and latencies:
            yield RuleResult(
                location=location,
                message=f"optimization_target {target} ignores {' and '.join(latencies)}",
                fix=Fix(
                    text="Set optimization_target to sla.",
                    graph={"planner.config.optimization_target": "sla"},
                ),
            )


def more_gpus_than_nodes_have(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.gpu_nodes or not deployment.gpus_per_node:
        return
    available = deployment.gpu_nodes * deployment.gpus_per_node
    owners = scalers(document.value for document in deployment.documents)
    most, names = 0, []
    for component in deployment.components:
        scaler = owners.get(adapter_name(deployment.name, component.name), Scaler())
        most_replicas = component.replicas if scaler.max_replicas is None else scaler.max_replicas
        most += component.gpus * most_replicas
        if component.role in WORKERS and most_replicas > component.replicas:
            names.append(component.name)
    if names and most > available:
        yield RuleResult(
            location=Location(names[0], "field", ("scalingAdapter",)),
            message=f"autoscaling of {' and '.join(names)} may use {most} GPUs, but hardware.nodes "
            f"has {available} ({deployment.gpu_nodes} × {deployment.gpus_per_node})",
            fix=Fix(text="Lower autoscaling.max, or raise hardware.nodes."),
        )
    for _, config in configurations(deployment):
        budget = value_of(config, "max_gpu_budget", DEFAULT_BUDGET)
        if isinstance(budget, int) and budget > available:
            yield RuleResult(
                location=Location("", "graph", ("planner", "max_gpus")),
                message=f"the planner may use {budget} GPUs, but hardware.nodes has "
                f"{available} ({deployment.gpu_nodes} × {deployment.gpus_per_node})",
                fix=Fix(
                    text=f"Set planner.max_gpus to at most {available}.",
                    graph={"planner.max_gpus": available},
                ),
            )


def signal_off(deployment: ServingDeployment) -> Iterable[RuleResult]:
    planned = any(not config.get("advisory") for _, config in configurations(deployment))
    for worker in deployment.workers:
        reader = "the planner" if planned else "the autoscaler"
        published = worker.env("DYN_TRTLLM_PUBLISH_METRICS")
        if (
            worker.is_trtllm
            and worker.get("enable_iter_perf_stats") is False
            and (planned or published)
        ):
            yield RuleResult(
                location=worker.config_location("enable_iter_perf_stats"),
                message=f"{worker.name} publishes no iteration statistics, but {reader} reads them",
                fix=Fix(
                    text="Enable enable_iter_perf_stats.", config={"enable_iter_perf_stats": True}
                ),
            )
        elif planned and worker.engine is Engine.VLLM and worker.get("scheduler-cls"):
            yield RuleResult(
                location=worker.config_location("scheduler-cls"),
                message=f"{worker.name} has a custom scheduler, which publishes none of the "
                "planner's metrics",
                fix=Fix(
                    text="Remove scheduler-cls, so that Dynamo sets its own.",
                    config={"scheduler-cls": None},
                ),
            )
