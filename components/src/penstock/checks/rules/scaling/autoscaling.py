"""Rules of autoscalers: the planner's configuration, and how far they may go."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
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
    title="no planner configuration",
    level=Level.ERROR,
    cause="A key that PlannerConfig does not have, or values that it does not take, alone or "
    "together.",
    effect="The first is ignored without a word, with the others the planner ends.",
    remedy="Use the fields of PlannerConfig.",
    source="dynamo/planner/config/planner_config.py 1.6.1",
)
def not_a_configuration(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, config in configurations(deployment):
        for problem in invalid_fields(config):
            yield RuleResult(location=location, message=problem.message, fix=Fix(text=problem.fix))


@rule(
    id="PS812",
    title="a planner without GPUs to plan",
    level=Level.ERROR,
    cause="max_gpu_budget, 8 where nobody says it, is less than the fewest endpoints take.",
    effect="The planner refuses its configuration and ends.",
    remedy="Say how many GPUs the pools may take.",
    source="dynamo/planner/core/base.py 1.6.1 (_runtime_configuration_errors)",
)
def budget_too_small(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, config in configurations(deployment):
        if problem := small_budget(deployment, config):
            fix = Fix(text=problem.fix, graph=problem.graph)
            yield RuleResult(location=location, message=problem.message, fix=fix)


@rule(
    id="PS813",
    title="latencies that no planner reads",
    level=Level.WARNING,
    cause="ttft_ms and itl_ms are set, and optimization_target, throughput by default, is not sla.",
    effect="The planner scales by static thresholds; the latencies are not held.",
    remedy="optimization_target: sla.",
    source="dynamo/planner/config/planner_config.py 1.6.1 (_validate_config)",
)
def latencies_unread(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, config in configurations(deployment):
        target = value_of(config, "optimization_target", "throughput")
        said = [name for name in LATENCIES if value_of(config, name, None) is not None]
        if target != "sla" and said:
            yield RuleResult(
                location=location,
                message=f"{' and '.join(said)} with optimization_target {target}, which does not "
                "read them",
                fix=Fix(
                    text="set optimization_target sla",
                    graph={"planner.config.optimization_target": "sla"},
                ),
            )


@rule(
    id="PS814",
    title="autoscaling beyond the nodes",
    level=Level.WARNING,
    cause="The autoscalers' bounds add up to more GPUs than hardware.nodes has.",
    effect="Pods stay Pending at the peak; the planner has stood still for an hour over one.",
    remedy="Lower the bounds, or add nodes.",
    source="dynamo#14251",
)
def beyond_the_nodes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.gpu_nodes or not deployment.gpus_per_node:
        return
    have = deployment.gpu_nodes * deployment.gpus_per_node
    owners = scalers(document.value for document in deployment.documents)
    most, names = 0, []
    for component in deployment.components:
        scaler = owners.get(adapter_name(deployment.name, component.name), Scaler())
        goes_to = component.replicas if scaler.most is None else scaler.most
        most += component.gpus * goes_to
        if component.role in WORKERS and goes_to > component.replicas:
            names.append(component.name)
    if names and most > have:
        yield RuleResult(
            location=Location(names[0], "field", ("scalingAdapter",)),
            message=f"autoscaling of {' and '.join(names)} goes up to {most} GPUs, and "
            f"hardware.nodes {deployment.gpu_nodes} of {deployment.gpus_per_node} have {have}",
            fix=Fix(text="lower autoscaling.max, or name the nodes that a peak may take"),
        )
    for _, config in configurations(deployment):
        budget = value_of(config, "max_gpu_budget", DEFAULT_BUDGET)
        if isinstance(budget, int) and budget > have:
            yield RuleResult(
                location=Location("", "graph", ("planner", "max_gpus")),
                message=f"the planner may take {budget} GPUs, and hardware.nodes "
                f"{deployment.gpu_nodes} of {deployment.gpus_per_node} have {have}",
                fix=Fix(text=f"at most {have}", graph={"planner.max_gpus": have}),
            )


@rule(
    id="PS815",
    title="an autoscaler without its signal",
    level=Level.WARNING,
    cause="TensorRT-LLM's iteration statistics are switched off, or vLLM's scheduler is not "
    "Dynamo's, beside an autoscaler that reads what they publish.",
    effect="It sees no load: the pool stays as it is, whatever comes.",
    remedy="Leave the statistics on; remove the scheduler.",
    source="dynamo/trtllm/publisher.py and dynamo/vllm/args.py 1.6.1",
)
def signal_off(deployment: ServingDeployment) -> Iterable[RuleResult]:
    planned = any(not config.get("advisory") for _, config in configurations(deployment))
    for worker in deployment.workers:
        reads = "the planner follows" if planned else "the autoscaler's signal is one of"
        published = worker.env("DYN_TRTLLM_PUBLISH_METRICS")
        if (
            worker.is_trtllm
            and worker.get("enable_iter_perf_stats") is False
            and (planned or published)
        ):
            yield RuleResult(
                location=worker.config("enable_iter_perf_stats"),
                message=f"{worker.name} publishes no iteration statistics, and {reads} them",
                fix=Fix(text="switch them on", config={"enable_iter_perf_stats": True}),
            )
        elif planned and worker.engine is Engine.VLLM and worker.get("scheduler-cls"):
            yield RuleResult(
                location=worker.config("scheduler-cls"),
                message=f"{worker.name} has a scheduler of its own, which publishes nothing that "
                "the planner follows",
                fix=Fix(text="leave the scheduler to Dynamo", config={"scheduler-cls": None}),
            )
