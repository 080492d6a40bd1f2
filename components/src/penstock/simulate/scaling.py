"""Autoscaled pools: their size in a replay without a planner, and how a planner changed them.

A worker is allocated, and holds its GPUs, from the decision to start it until its last request
ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.manifests.deployment import WORKERS, Component, Role
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.serving.deployment import ServingDeployment
from penstock.serving.planner import configurations, minimum_endpoints, planned_pools
from penstock.simulate.model import Replayable
from penstock.text.numbers import count_of

# The planner's names of the pools.
POOL_OF = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.WORKER: "agg"}


def replicas_of(serving: ServingDeployment, component: Component) -> int:
    """The manifest's replicas, or the minimum of the planner that sets them."""
    minimum = _planner_minimum(serving, component)
    is_set = not serving.pods[component.name].cursor["replicas"].is_absent
    return component.replicas if minimum is None or is_set else max(1, minimum)


def unscaled(serving: ServingDeployment) -> Iterator[str]:
    """One clause for each pool whose replicas something else than the manifest sets."""
    owners = scalers(document.value for document in serving.documents)
    for component in serving.components:
        if component.role not in WORKERS or not component.replicas:
            continue
        cursor = serving.pods[component.name].cursor
        scaler = owners.get(adapter_name(serving.name, component.name))
        is_planned = _planner_minimum(serving, component) is not None
        has_adapter = not cursor["scalingAdapter"].is_absent
        if not (cursor["replicas"].is_absent or has_adapter or scaler):
            continue
        count = replicas_of(serving, component)
        size = f"{component.name} has a fixed size of {count_of(count, 'replica')}"
        if is_planned and has_adapter:
            yield f"{size}; with --planner the planner scales it"
        elif scaler or has_adapter:
            yield f"{size}; on a cluster {scaler or Scaler()} scales it"
        else:
            yield f"{size}, as the manifest does not set replicas"


def _planner_minimum(serving: ServingDeployment, component: Component) -> int | None:
    """The fewest replicas that the graph's planner scales down to; None if none scales it."""
    if serving.pods[component.name].cursor["scalingAdapter"].is_absent:
        return None
    for _, config in configurations(serving):
        if component in planned_pools(serving, config):
            return minimum_endpoints(component, config)
    return None


@dataclass(frozen=True, kw_only=True)
class Event:
    """A decision of the planner to change the number of workers of a pool."""

    at_s: float
    """Simulated time of the decision in seconds."""
    pool: str
    """Name of the pool."""
    before: int
    """Number of workers before the decision."""
    after: int
    """Number of workers that the planner wants."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The number of workers of a pool from a moment on."""

    at_ms: float
    serving: int  # workers that are ready
    allocated: int  # workers that hold GPUs


@dataclass(frozen=True, kw_only=True)
class Scaling:
    events: tuple[Event, ...]
    steps: tuple[tuple[Step, ...], ...]  # of each pool, in order, from 0 to `end_ms`
    end_ms: float

    @property
    def worker_ms(self) -> tuple[float, ...]:
        """For each pool, the sum of its workers' allocated time in ms."""
        return tuple(sum(_spans(steps, self.end_ms)) for steps in self.steps)

    @property
    def average(self) -> tuple[float, ...]:
        """For each pool, the average number of allocated workers."""
        return tuple(allocated / max(self.end_ms, 1e-6) for allocated in self.worker_ms)

    @property
    def peak(self) -> tuple[int, ...]:
        """For each pool, the highest number of allocated workers."""
        return tuple(max(step.allocated for step in steps) for steps in self.steps)

    def gpus(self, deployment: Replayable) -> float:
        """The average number of allocated GPUs."""
        pairs = zip(self.average, deployment.pools, strict=True)
        return sum(workers * pool.worker_gpus for workers, pool in pairs)


def _spans(steps: Sequence[Step], end_ms: float) -> Iterator[float]:
    ends = [*(step.at_ms for step in steps[1:]), end_ms]
    for step, until in zip(steps, ends, strict=True):
        yield step.allocated * max(0.0, min(until, end_ms) - min(step.at_ms, end_ms))


def scaling_of(result: Mapping[str, Any], deployment: Replayable) -> Scaling:
    """The scaling in a replay's result; with fixed pools nothing changes."""
    scaling = result.get("scaling") or {"events": [], "changes": []}
    names = [POOL_OF[pool.role] for pool in deployment.pools]
    pool_names = {name: "+".join(p.names) for name, p in zip(names, deployment.pools, strict=True)}
    events = [
        Event(
            at_s=event["at_s"],
            pool=pool_names[event["component"]],
            before=event["from_count"],
            after=event["to_count"],
        )
        for event in scaling["events"]
    ]
    steps = [
        tuple(_steps(pool.replicas, [c for c in scaling["changes"] if c["pool"] == name]))
        for name, pool in zip(names, deployment.pools, strict=True)
    ]
    end_ms = float(result["summary"]["duration_ms"])
    return Scaling(events=tuple(events), steps=tuple(steps), end_ms=end_ms)


def _steps(replicas: int, changes: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    steps = [Step(at_ms=0.0, serving=replicas, allocated=replicas)]
    for change in changes:
        allocated = change["active"] + change["starting"] + change["draining"]
        steps.append(Step(at_ms=change["at_ms"], serving=change["active"], allocated=allocated))
    # Of several changes at one time the last one counts.
    yield from (now for now, then in pairwise(steps) if then.at_ms > now.at_ms)
    yield steps[-1]
