"""Pools whose replicas an autoscaler owns: how many a replay without one takes, and its words."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.manifests.deployment import Component
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.serving.deployment import ServingDeployment
from penstock.serving.planner import configurations, fewest_endpoints, planned_pools
from penstock.serving.worker import WORKERS


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
            return fewest_endpoints(component, config)
    return None
