"""Rules about autoscaling: the planner's configuration, and the limits of autoscalers."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import ARITHMETIC, DYNAMO, Versions
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


@rule(
    id="PS811",
    title="invalid planner configuration",
    level=Level.ERROR,
    cause="The configuration has a key that PlannerConfig lacks, or values that it rejects, alone "
    "or in combination.",
    effect="The planner ignores unknown keys silently and exits on invalid values.",
    remedy="Use the fields and values of PlannerConfig.",
    source="dynamo/planner/config/planner_config.py 1.6.1, and its fields in 1.0.2 to 1.7.0",
    versions=DYNAMO,
    other_levels=(Level.WARNING,),
)
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


@rule(
    id="PS812",
    title="the planner's GPU budget is too small",
    level=Level.ERROR,
    cause="max_gpu_budget (default 8) is less than what the minimum number of endpoints needs.",
    effect="The planner rejects its configuration and exits.",
    remedy="Set the number of GPUs that the pools may use.",
    source="dynamo/planner/core/base.py 1.6.1 (_runtime_configuration_errors) and 1.5.1 "
    "(_validate_min_endpoint_budgets_at_startup)",
    versions=Versions(dynamo=">=1.5"),
)
def budget_too_small(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, config in configurations(deployment):
        if problem := small_budget(deployment, config):
            fix = Fix(text=problem.fix, graph=problem.graph)
            yield RuleResult(location=location, message=problem.message, fix=fix)


@rule(
    id="PS813",
    title="the planner ignores the latency targets",
    level=Level.WARNING,
    cause="ttft_ms and itl_ms are set, but optimization_target (default: throughput) is not sla.",
    effect="The planner scales by static thresholds and does not keep the latency targets.",
    remedy="Set optimization_target: sla.",
    source="dynamo/planner/config/planner_config.py 1.1.1 to 1.7.0 (_validate_config)",
    versions=Versions(dynamo=">=1.1"),
)
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


@rule(
    id="PS814",
    title="autoscaling may exceed the available GPUs",
    level=Level.WARNING,
    cause="The autoscalers' bounds add up to more GPUs than hardware.nodes has.",
    effect="Pods stay Pending at peak load. The planner has stalled for an hour on a Pending pod.",
    remedy="Lower the upper bounds, or add nodes.",
    source="dynamo#14251",
    versions=ARITHMETIC,
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


@rule(
    id="PS815",
    title="the autoscaler gets no load metrics",
    level=Level.WARNING,
    cause="An autoscaler reads the metrics of TensorRT-LLM's iteration statistics or of Dynamo's "
    "vLLM scheduler, but the statistics are off or the scheduler is another one.",
    effect="The autoscaler sees no load and never scales the pool.",
    remedy="Enable the iteration statistics, or remove the custom scheduler.",
    source="dynamo/trtllm/publisher.py and dynamo/vllm/args.py 1.6.1",
    versions=Versions(dynamo=">=1.6"),
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
