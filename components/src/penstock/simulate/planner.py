"""Dynamo's planner of a graph as replay runs it: its configuration, without what is a cluster's.

The configuration is the one that the chart rendered, which is what would be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import Problem, SimulationError
from penstock.graph.slo import Slo
from penstock.manifests.deployment import Role
from penstock.manifests.source import Source
from penstock.serving.deployment import ServingDeployment
from penstock.serving.planner import (
    DEFAULT_BUDGET,
    configurations,
    fields,
    invalid_fields,
    planned_pools,
    small_budget,
)
from penstock.serving.understand import Hints, understand
from penstock.serving.worker import WORKERS
from penstock.simulate.model import Planner, PoolReplay, Replayable

# Servers, reports, Prometheus and what is looked up on a cluster: replay has none of them.
CLUSTERS = (
    *("environment", "namespace", "global_planner_namespace", "log_dir", "profile_results_dir"),
    *("pre_deployment_sweeping_mode", "aic_interpolation", "model_name", "advisory"),
    *("prefill_engine_num_gpu", "decode_engine_num_gpu", "throughput_metrics_source"),
    *("enable_power_awareness", "total_gpu_power_limit", "load_predictor_warmup_trace"),
    "plugin_registration",
)
CLUSTERS_BEGIN = ("metric_pulling_", "metric_reporting_", "report_")
OFF: Mapping[str, Any] = {
    "control_api_port": 0,
    "live_dashboard_port": 0,
    "report_interval_hours": None,
}
NOT_DONE: Mapping[str, str] = {
    "enable_power_awareness": "the planner's power budget",
    "load_predictor_warmup_trace": "the trace with which the planner's predictor begins",
    "plugin_registration": "the planner's plugins",
}
LEARNT = (
    "the planner knows the engines' times from the beginning; an installed one may have to learn"
)


def with_planner(
    deployment: Replayable, source: Source, hints: Hints, startup_s: float
) -> Replayable:
    """The deployment with its planner in the loop; without an SLO it has the planner's latencies.

    SimulationError where its graph has no planner that replay could run.
    """
    serving = understand(source, hints)
    said = _config_of(serving, deployment)
    config = _named(said)
    _judge(serving, said, deployment)
    kept = {key: value for key, value in config.items() if not _is_a_clusters(key)}
    if isinstance(scheduling := kept.get("scheduling"), dict):
        kept["scheduling"] = {
            key: value
            for key, value in scheduling.items()
            if key not in ("gateway", "external_plugins")
        }
    budget = config.get("max_gpu_budget", DEFAULT_BUDGET)
    return replace(
        deployment,
        name=f"{deployment.name}, planner",
        planner=Planner(
            config={**kept, **OFF},
            startup_s=startup_s,
            most_gpus=budget if isinstance(budget, int) and budget >= 0 else None,
        ),
        pools=tuple(_starting(pool, startup_s) for pool in deployment.pools),
        unscaled=(),
        assumed=(*deployment.assumed, *_assumed(config, startup_s)),
        left_out=(*deployment.left_out, *_left_out(config)),
        slo=deployment.slo or _latencies(config),
    )


def _config_of(serving: ServingDeployment, deployment: Replayable) -> Mapping[str, Any]:
    found = [config for _, config in configurations(serving)]
    if found:
        return found[0]
    planners = [c for c in serving.with_role(Role.PLANNER) if c.replicas]
    message, fix = (
        f"{deployment.name} has no planner that runs",
        "add planner with max_gpus, and autoscaling: {owner: planner} in place of replicas",
    )
    if planners:
        message = "its configuration does not stand in the manifest"
        fix = "give it as JSON: --config '{…}'"
    raise _refuse("planner", message, fix)


def _named(said: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the fields, whatever the spelling."""
    return {str(fields().get(key, {}).get("name", key)): value for key, value in said.items()}


def _judge(serving: ServingDeployment, said: Mapping[str, Any], deployment: Replayable) -> None:
    """What an installed planner refuses; and replay's scales every pool, one a role."""
    configs = [config for _, config in configurations(serving)]
    budgets = (small_budget(serving, config) for config in configs)
    wrong = [
        *(problem for config in configs for problem in invalid_fields(config)),
        *(problem for problem in budgets if problem is not None),
    ]
    if wrong:
        raise SimulationError(
            *(
                Problem(place="planner.config", message=found.message, fix=found.fix)
                for found in wrong
            )
        )
    for pool in deployment.pools:
        if len(pool.names) > 1:
            message = f"{' and '.join(pool.names)} have one role, of which the planner scales one"
            raise _refuse("planner", message, "one pool a role")
    planned = {component.name for component in planned_pools(serving, said)}
    for component in serving.components:
        name = component.name
        if component.role not in WORKERS or not component.replicas:
            continue
        if name not in planned or serving.pods[name].cursor["scalingAdapter"].is_absent:
            message = "its replicas are not the planner's, and replay's planner scales every pool"
            raise _refuse(name, message, f"{name}.autoscaling: {{owner: planner}}, and no replicas")


def _refuse(place: str, message: str, fix: str) -> SimulationError:
    return SimulationError(Problem(place=place, message=message, fix=fix))


def _is_a_clusters(key: str) -> bool:
    return key in CLUSTERS or key.startswith(CLUSTERS_BEGIN)


def _starting(pool: PoolReplay, startup_s: float) -> PoolReplay:
    """With the time that a further worker takes, and the GPUs that the budget counts for it."""
    ranks = pool.engine["dp_size"]
    stages = pool.engine["engine"]["timing_model"]["config"].get("pp", 1)
    width = max(1, pool.gpus // (ranks * stages))
    engine = {**pool.engine, "startup_time": startup_s, "tensor_parallel_size": width}
    return replace(pool, engine=engine)


def _latencies(config: Mapping[str, Any]) -> Slo:
    said = {name: config.get(name) for name in ("ttft_ms", "itl_ms")}
    return Slo(**{name: float(ms) for name, ms in said.items() if isinstance(ms, int | float)})


def _assumed(config: Mapping[str, Any], startup_s: float) -> Iterator[str]:
    yield f"a further worker answers {startup_s:g} s after the planner's decision (--startup)"
    if config.get("optimization_target", "throughput") == "sla":
        yield LEARNT
    if config.get("advisory"):
        yield "advisory is off: what the planner advises is done"


def _left_out(config: Mapping[str, Any]) -> Iterator[str]:
    for key, what in NOT_DONE.items():
        if config.get(key):
            yield what
    scheduling = config.get("scheduling")
    if isinstance(scheduling, dict) and scheduling.get("external_plugins"):
        yield NOT_DONE["plugin_registration"]
    if config.get("environment") == "global-planner":
        yield "the global planner's bounds"
    yield "Prometheus' delay, and nodes that are not there when a worker starts"
