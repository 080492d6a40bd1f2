"""Pools whose replicas an autoscaler owns: how many a replay without one takes, and its words."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checks.autoscaling import configs, fewest_endpoints, planned_pools
from penstock.checks.subject import WORKERS, Subject
from penstock.manifests.deployment import Component
from penstock.manifests.scalers import Scaler, adapter_name, scalers


def replicas_of(subject: Subject, component: Component) -> int:
    """The manifest's, or the fewest that its autoscaler goes down to."""
    fewest = _planners_least(subject, component)
    is_said = not subject.pods[component.name].cursor["replicas"].is_absent
    return component.replicas if fewest is None or is_said else max(1, fewest)


def unscaled(subject: Subject) -> Iterator[str]:
    """A clause for each pool that somebody else scales."""
    owners = scalers(document.value for document in subject.documents)
    for component in subject.deployment.components:
        if component.role not in WORKERS or not component.replicas:
            continue
        cursor = subject.pods[component.name].cursor
        scaler = owners.get(adapter_name(subject.deployment.name, component.name))
        is_planned = _planners_least(subject, component) is not None
        has_adapter = not cursor["scalingAdapter"].is_absent
        if not (cursor["replicas"].is_absent or has_adapter or scaler):
            continue
        count = replicas_of(subject, component)
        many = f"{count} replica{'s' * (count != 1)}"
        if is_planned and has_adapter:
            yield f"{component.name} stays at {many}; with --planner it is scaled"
        elif scaler or has_adapter:
            yield f"{component.name} stays at {many}, and {scaler or Scaler()} would change that"
        else:
            yield f"{component.name} stays at {many}: the manifest does not say how many"


def _planners_least(subject: Subject, component: Component) -> int | None:
    """The fewest that a planner of the graph leaves it; None where none scales it."""
    if subject.pods[component.name].cursor["scalingAdapter"].is_absent:
        return None
    for _, config in configs(subject):
        if component in planned_pools(subject, config):
            return fewest_endpoints(component, config)
    return None
