"""Dynamo's planner in a replay, and the fixed pools that it is compared with.

The planner has its rendered configuration, without what needs a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from statistics import mean, median_low
from typing import Any

from packaging.version import Version

from penstock.checks.version_range import contains
from penstock.engines.releases import DEPLOYED, RELEASES
from penstock.errors import Problem, SimulationError
from penstock.graph.slo import Slo
from penstock.manifests.deployment import WORKERS, Role
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
from penstock.simulate.model import Planner, PoolReplay, Replayable
from penstock.simulate.replayable import not_replayable
from penstock.simulate.scaling import Scaling
from penstock.simulate.study import Progress, Row, Study
from penstock.text.numbers import limit_text

# Servers, reports, Prometheus and what the planner looks up on a cluster.
CLUSTER_KEYS = (
    *("environment", "namespace", "global_planner_namespace", "log_dir", "profile_results_dir"),
    *("pre_deployment_sweeping_mode", "aic_interpolation", "model_name", "advisory"),
    *("prefill_engine_num_gpu", "decode_engine_num_gpu", "throughput_metrics_source"),
    *("enable_power_awareness", "total_gpu_power_limit", "load_predictor_warmup_trace"),
    "plugin_registration",
)
CLUSTER_KEY_PREFIXES = ("metric_pulling_", "metric_reporting_", "report_")
OFF: Mapping[str, Any] = {
    "control_api_port": 0,
    "live_dashboard_port": 0,
    "report_interval_hours": None,
}
NOT_SIMULATED: Mapping[str, str] = {
    "enable_power_awareness": "the planner's power budget",
    "load_predictor_warmup_trace": "the warm-up trace of the planner's load predictor",
    "plugin_registration": "the planner's plugins",
}
KNOWN_TIMES = "the planner knows all step times from the start; on a cluster it may learn them"
TOLERANCE = 0.02  # of a worker: an average this close to an integer is that integer


def with_planner(
    deployment: Replayable, source: Source, hints: Hints, startup_s: float
) -> Replayable:
    """The deployment with its planner. Without an SLO it gets the planner's target latencies.

    ``startup_s``: time until an added worker is ready. SimulationError if the graph has no planner
    that can be replayed.
    """
    serving = understand(source, hints)
    rendered = _config_of(serving, deployment)
    config = _by_field_name(rendered)
    _check(serving, rendered, deployment)
    kept = {key: value for key, value in config.items() if not _needs_cluster(key)}
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
            max_gpus=budget if isinstance(budget, int) and budget >= 0 else None,
        ),
        pools=tuple(_with_startup(pool, startup_s) for pool in deployment.pools),
        unscaled=(),
        assumed=(*deployment.assumed, *_assumed(config, startup_s)),
        not_simulated=(*deployment.not_simulated, *_not_simulated(config)),
        slo=deployment.slo or _target_latencies(config),
    )


def _config_of(serving: ServingDeployment, deployment: Replayable) -> Mapping[str, Any]:
    configs = [config for _, config in configurations(serving)]
    if configs:
        return configs[0]
    planners = [c for c in serving.with_role(Role.PLANNER) if c.replicas]
    message, fix = (
        f"{deployment.name} has no running planner",
        "Add `planner` with `max_gpus`, and replace `replicas` of each pool by "
        "`autoscaling: {owner: planner}`",
    )
    if planners:
        message = "the planner's configuration is not part of the manifest"
        fix = "Pass the configuration as JSON: `--config '{…}'`"
    raise not_replayable(message, fix, "planner")


def _by_field_name(rendered: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration under the names of the fields, not their aliases."""
    return {str(fields().get(key, {}).get("name", key)): value for key, value in rendered.items()}


def _check(serving: ServingDeployment, rendered: Mapping[str, Any], deployment: Replayable) -> None:
    """Refuses what an installed planner refuses, and what the replay's planner cannot do: it scales
    every pool, and one pool per role."""
    configs = [config for _, config in configurations(serving)]
    budgets = (small_budget(serving, config) for config in configs)
    installed = Version(RELEASES[DEPLOYED].dynamo)
    wrong = [
        *(
            problem
            for config in configs
            for problem in invalid_fields(config)
            if not problem.releases or contains(problem.releases, installed)
        ),
        *(problem for problem in budgets if problem is not None),
    ]
    if wrong:
        raise SimulationError(
            *(
                Problem(place="planner.config", message=problem.message, fix=problem.fix)
                for problem in wrong
            )
        )
    for pool in deployment.pools:
        if len(pool.names) > 1:
            message = (
                f"{' and '.join(pool.names)} have the same role; the planner scales one of them"
            )
            raise not_replayable(message, "Merge them into one pool.", "planner")
    planned = {component.name for component in planned_pools(serving, rendered)}
    for component in serving.components:
        name = component.name
        if component.role not in WORKERS or not component.replicas:
            continue
        if name not in planned or serving.pods[name].cursor["scalingAdapter"].is_absent:
            message = (
                "the planner does not set its replicas, but a replay's planner scales every pool"
            )
            fix = f"Replace `{name}.replicas` by `{name}.autoscaling: {{owner: planner}}`"
            raise not_replayable(message, fix, name)


def _needs_cluster(key: str) -> bool:
    return key in CLUSTER_KEYS or key.startswith(CLUSTER_KEY_PREFIXES)


def _with_startup(pool: PoolReplay, startup_s: float) -> PoolReplay:
    """The pool with the start-up time of an added worker, and the GPUs that the budget counts for
    it."""
    ranks = pool.engine["dp_size"]
    stages = pool.engine["engine"]["timing_model"]["config"].get("pp", 1)
    width = max(1, pool.gpus // (ranks * stages))
    engine = {**pool.engine, "startup_time": startup_s, "tensor_parallel_size": width}
    return replace(pool, engine=engine)


def _target_latencies(config: Mapping[str, Any]) -> Slo:
    values = {name: config.get(name) for name in ("ttft_ms", "itl_ms")}
    return Slo(**{name: float(ms) for name, ms in values.items() if isinstance(ms, int | float)})


def _assumed(config: Mapping[str, Any], startup_s: float) -> Iterator[str]:
    startup = limit_text(startup_s)
    yield f"an added worker is ready {startup} s after the planner's decision (--startup)"
    if config.get("optimization_target", "throughput") == "sla":
        yield KNOWN_TIMES
    if config.get("advisory"):
        yield "advisory is off: the planner's decisions are carried out"


def _not_simulated(config: Mapping[str, Any]) -> Iterator[str]:
    for key, what in NOT_SIMULATED.items():
        if config.get(key):
            yield what
    scheduling = config.get("scheduling")
    if isinstance(scheduling, dict) and scheduling.get("external_plugins"):
        yield NOT_SIMULATED["plugin_registration"]
    if config.get("environment") == "global-planner":
        yield "the limits of the global planner"
    yield "the delay of Prometheus, and nodes that are missing when a worker starts"


def compare_with_planner(
    study: Study,
    deployment: Replayable,
    planned: Replayable,
    progress: Progress | None = None,
) -> list[Row]:
    """Rows of the initial pools without changes, of the planner, and of fixed pools: the planner's
    average number of workers, rounded down and up, and its peak."""
    initial, run = study.rows([replace(deployment, slo=planned.slo), planned], progress)
    first, *fixed = fixed_pools(initial.replayable, run.scalings)
    rows = study.rows(fixed, progress) if fixed else []
    return [replace(initial, replayable=first), run, *rows]


def fixed_pools(deployment: Replayable, scalings: Sequence[Scaling]) -> list[Replayable]:
    """The deployment with its initial pools, and with each other size; every size once."""
    pools = range(len(deployment.pools))
    averages = [mean(scaling.average[pool] for scaling in scalings) for pool in pools]
    sizes = {
        "the initial size": [pool.replicas for pool in deployment.pools],
        "the planner's average, rounded down": [max(1, floor(a + TOLERANCE)) for a in averages],
        "the planner's average, rounded up": [max(1, ceil(a - TOLERANCE)) for a in averages],
        "the planner's peak": [median_low([s.peak[pool] for s in scalings]) for pool in pools],
    }
    reasons: dict[tuple[int, ...], list[str]] = {}
    for reason, counts in sizes.items():
        reasons.setdefault(tuple(counts), []).append(reason)
    return [_resized(deployment, counts, why) for counts, why in reasons.items()]


def _resized(deployment: Replayable, counts: Sequence[int], reasons: Sequence[str]) -> Replayable:
    size = "+".join(map(str, counts))
    return replace(
        deployment,
        name=f"{deployment.name}, fixed {size}",
        pools=tuple(p.resized(n) for p, n in zip(deployment.pools, counts, strict=True)),
        unscaled=(f"the pools have a fixed size: {', '.join(reasons)}",),
    )
