"""How a planner changed the pools of a replay: its decisions, workers over time, and GPU hours.

A worker holds its GPUs from the decision to start it until its last request is answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.manifests.deployment import Component, Role
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.serving.deployment import ServingDeployment
from penstock.serving.planner import configurations, minimum_endpoints, planned_pools
from penstock.serving.worker import WORKERS
from penstock.simulate.model import Replayable

# The planner's names of the pools.
POOL_OF = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.WORKER: "agg"}


@dataclass(frozen=True, kw_only=True)
class Event:
    """A decision: ``pool`` is to have ``after`` workers."""

    at_s: float
    pool: str
    before: int
    after: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """Workers of a pool from ``at_ms`` on: those that answer, and all that hold GPUs."""

    at_ms: float
    serving: int
    held: int


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """``steps``: of each pool of the deployment, in order, from 0 to ``end_ms``."""

    events: tuple[Event, ...]
    steps: tuple[tuple[Step, ...], ...]
    end_ms: float

    @property
    def worker_ms(self) -> tuple[float, ...]:
        """Of each pool, all workers that hold GPUs together."""
        return tuple(sum(_spans(steps, self.end_ms)) for steps in self.steps)

    @property
    def average(self) -> tuple[float, ...]:
        return tuple(held / max(self.end_ms, 1e-6) for held in self.worker_ms)

    @property
    def peak(self) -> tuple[int, ...]:
        return tuple(max(step.held for step in steps) for steps in self.steps)

    def gpus(self, deployment: Replayable) -> float:
        """SustainedLoad on average."""
        pairs = zip(self.average, deployment.pools, strict=True)
        return sum(workers * pool.worker_gpus for workers, pool in pairs)


def _spans(steps: Sequence[Step], end_ms: float) -> Iterator[float]:
    ends = [*(step.at_ms for step in steps[1:]), end_ms]
    for step, until in zip(steps, ends, strict=True):
        yield step.held * max(0.0, min(until, end_ms) - min(step.at_ms, end_ms))


def scaling_of(answer: Mapping[str, Any], deployment: Replayable) -> Scaling:
    """Of a replay's answer; with fixed pools nothing changes."""
    said = answer.get("scaling") or {"events": [], "changes": []}
    names = [POOL_OF[pool.role] for pool in deployment.pools]
    told = {name: "+".join(p.names) for name, p in zip(names, deployment.pools, strict=True)}
    events = [
        Event(
            at_s=event["at_s"],
            pool=told[event["component"]],
            before=event["from_count"],
            after=event["to_count"],
        )
        for event in said["events"]
    ]
    steps = [
        tuple(_steps(pool.replicas, [c for c in said["changes"] if c["pool"] == name]))
        for name, pool in zip(names, deployment.pools, strict=True)
    ]
    return Scaling(
        events=tuple(events), steps=tuple(steps), end_ms=float(answer["summary"]["duration_ms"])
    )


def _steps(replicas: int, changes: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    found = [Step(at_ms=0.0, serving=replicas, held=replicas)]
    for change in changes:
        held = change["active"] + change["starting"] + change["draining"]
        found.append(Step(at_ms=change["at_ms"], serving=change["active"], held=held))
    # Of several at one time the last counts.
    yield from (now for now, then in pairwise(found) if then.at_ms > now.at_ms)
    yield found[-1]


def replicas_of(serving: ServingDeployment, component: Component) -> int:
    """The manifest's, or the fewest that its autoscaler goes down to."""
    fewest = _planners_least(serving, component)
    is_said = not serving.pods[component.name].cursor["replicas"].is_absent
    return component.replicas if fewest is None or is_said else max(1, fewest)


def unscaled(serving: ServingDeployment) -> Iterator[str]:
    """A clause for each pool that somebody else scales."""
    owners = scalers(document.value for document in serving.documents)
    for component in serving.components:
        if component.role not in WORKERS or not component.replicas:
            continue
        cursor = serving.pods[component.name].cursor
        scaler = owners.get(adapter_name(serving.name, component.name))
        is_planned = _planners_least(serving, component) is not None
        has_adapter = not cursor["scalingAdapter"].is_absent
        if not (cursor["replicas"].is_absent or has_adapter or scaler):
            continue
        count = replicas_of(serving, component)
        many = f"{count} replica{'s' * (count != 1)}"
        if is_planned and has_adapter:
            yield f"{component.name} stays at {many}; with --planner it is scaled"
        elif scaler or has_adapter:
            yield f"{component.name} stays at {many}, and {scaler or Scaler()} would change that"
        else:
            yield f"{component.name} stays at {many}: the manifest does not say how many"


def _planners_least(serving: ServingDeployment, component: Component) -> int | None:
    """The fewest that a planner of the graph leaves it; None where none scales it."""
    if serving.pods[component.name].cursor["scalingAdapter"].is_absent:
        return None
    for _, config in configurations(serving):
        if component in planned_pools(serving, config):
            return minimum_endpoints(component, config)
    return None
