"""Replicas of pools: how an update replaces them, and what scales them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.manifests.deployment import WORKERS, Component, Role
from penstock.manifests.pods import V1ALPHA1, Pod
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.serving.deployment import ServingDeployment

_ADVISORY = re.compile(r"advisory[\"']?\s*[:=]\s*[\"']?true", re.IGNORECASE)


def pools(deployment: ServingDeployment) -> list[Component]:
    """The components whose workers run a known engine."""
    return [c for c in deployment.components if c.role in WORKERS and c.engine is not None]


def max_unavailable(deployment: ServingDeployment, component: Component) -> int:
    """Replicas that an update stops before new ones are ready; a percentage is rounded down."""
    return _amount(deployment, component, "max-unavailable") // 100


def max_surge(deployment: ServingDeployment, component: Component) -> int:
    """Replicas that an update starts before old ones stop; a percentage is rounded up."""
    return -(-_amount(deployment, component, "max-surge") // 100)


def _amount(deployment: ServingDeployment, component: Component, limit: str) -> int:
    """Hundredths of replicas, from a count or from a percentage of the replicas."""
    annotations = deployment.annotations(component.name)
    text = str(annotations.get(f"nvidia.com/deployment-rolling-update-{limit}", "25%"))
    digits = text.removesuffix("%")
    if not digits.isdecimal():
        return 0
    return int(digits) * (component.replicas if text.endswith("%") else 100)


def is_recreated(deployment: ServingDeployment, component: Component) -> bool:
    """Whether an update stops all replicas before it starts new ones."""
    strategy = deployment.annotations(component.name).get("nvidia.com/deployment-strategy")
    return bool(strategy == "Recreate")


def surges(deployment: ServingDeployment, component: Component) -> bool:
    """Whether an update starts a new replica before an old one stops."""
    return not is_recreated(deployment, component) and max_surge(deployment, component) > 0


def has_adapter(deployment: ServingDeployment, pod: Pod) -> bool:
    """Whether it has a scaling adapter. v1beta1: the field exists; v1alpha1: `enabled` is true."""
    adapter = pod.cursor["scalingAdapter"].value
    if deployment.api_version == V1ALPHA1:
        return isinstance(adapter, Mapping) and adapter.get("enabled") is True
    return adapter is not None


def new_adapter(deployment: ServingDeployment) -> Mapping[str, Any]:
    """The field scalingAdapter of a component that gets one."""
    return {"enabled": True} if deployment.api_version == V1ALPHA1 else {}


def has_active_planner(deployment: ServingDeployment) -> bool:
    """Whether a planner scales the pools: it is not advisory."""
    planners = deployment.with_role(Role.PLANNER)
    argv = " ".join(" ".join(launch.argv) for c in planners for launch in c.launches)
    return bool(planners) and _ADVISORY.search(argv) is None


def most_replicas(deployment: ServingDeployment) -> dict[str, int]:
    """Component → the most replicas that its autoscaler allows; without one, its replicas."""
    owners = scalers(document.value for document in deployment.documents)
    most = {}
    for component in deployment.components:
        scaler = owners.get(adapter_name(deployment.name, component.name), Scaler())
        limit = scaler.max_replicas
        most[component.name] = component.replicas if limit is None else limit
    return most
