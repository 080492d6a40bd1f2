"""Rules about updates and replicas: downtime, spare GPUs, and the owner of the replica count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Role
from penstock.manifests.pods import V1ALPHA1
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS

SURGE = "nvidia.com/deployment-rolling-update-max-surge"
UNAVAILABLE = "nvidia.com/deployment-rolling-update-max-unavailable"
STRATEGY = "nvidia.com/deployment-strategy"
GROVE = "nvidia.com/grove-update-strategy"
# Operators of older releases do not set the strategy.
UNCLEAR_DEFAULT = Versions(dynamo=">=1.4")
RECREATE = {f"metadata/annotations/{GROVE.replace('/', '~1')}": "RollingRecreate"}


def _pools(deployment: ServingDeployment) -> Iterable[Component]:
    return [c for c in deployment.components if c.role in WORKERS and c.engine is not None]


def _amount(value: Any, replicas: int, *, up: bool) -> int:
    """A count or a percentage of the replicas, rounded as Deployments do."""
    text = str(value)
    if text.endswith("%") and text[:-1].isdigit():
        part = int(text[:-1]) * replicas
        return -(-part // 100) if up else part // 100
    return int(text) if text.isdigit() else 0


def no_replica_during_update(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in _pools(deployment):
        annotations = deployment.annotations(component.name)
        unavailable = _amount(annotations.get(UNAVAILABLE, "25%"), component.replicas, up=False)
        surge = _amount(annotations.get(SURGE, "25%"), component.replicas, up=True)
        if component.replicas and unavailable >= component.replicas and not surge:
            yield RuleResult(
                location=Location(
                    component.name, "field", ("metadata", "annotations", UNAVAILABLE)
                ),
                message=f"an update removes {unavailable} of {component.replicas} replicas before "
                "a new one is ready",
                fix=Fix(
                    text="Start new replicas first: max-surge 1, max-unavailable 0.",
                    fields={
                        f"metadata/annotations/{SURGE.replace('/', '~1')}": "1",
                        f"metadata/annotations/{UNAVAILABLE.replace('/', '~1')}": "0",
                    },
                ),
            )


def recreate(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in _pools(deployment):
        if deployment.annotations(component.name).get(STRATEGY) == "Recreate":
            yield RuleResult(
                location=Location(component.name, "field", ("metadata", "annotations", STRATEGY)),
                message=f"an update of {component.name} stops all workers before it starts new "
                "ones",
                fix=Fix(
                    text="Use RollingUpdate with max-surge 1.",
                    fields={f"metadata/annotations/{STRATEGY.replace('/', '~1')}": "RollingUpdate"},
                ),
            )


def spare_gpus(deployment: ServingDeployment) -> Iterable[RuleResult]:
    pools = [c for c in _pools(deployment) if c.gpus and c.nodes == 1]
    needed = sum(c.gpus for c in pools if _surges(deployment, c))
    if not needed:
        return
    nodes, per_node = deployment.gpu_nodes, deployment.gpus_per_node
    if nodes and per_node:
        free = nodes * per_node - deployment.gpus
        if free < needed:
            yield RuleResult(
                location=Location("", "graph", ("hardware", "nodes")),
                message=f"an update needs {needed} free GPU{'s' * (needed != 1)} (one more replica "
                f"of each pool); {max(0, free)} of {nodes * per_node} "
                f"{'is' if free == 1 else 'are'} free",
                fix=Fix(text="Leave GPUs free, or add a node for updates."),
            )


def _surges(deployment: ServingDeployment, component: Component) -> bool:
    annotations = deployment.annotations(component.name)
    return annotations.get(STRATEGY) != "Recreate" and bool(
        _amount(annotations.get(SURGE, "25%"), component.replicas, up=True)
    )


def coherent(deployment: ServingDeployment) -> Iterable[RuleResult]:
    strategy = deployment.annotations().get(GROVE)
    multinode = [c for c in deployment.components if c.nodes > 1]
    if strategy == "Coherent":
        yield RuleResult(
            location=Location("", "manifest", ("metadata", "annotations", GROVE)),
            message="grove-update-strategy is Coherent",
            fix=Fix(text="Use RollingRecreate.", deployment=RECREATE),
        )
    elif strategy is None and multinode and not deployment.is_graph:
        yield RuleResult(
            location=Location("", "manifest", ("metadata",)),
            message="grove-update-strategy is unset for multi-node components: sources disagree "
            "on the default",
            fix=Fix(text="Annotate the deployment with RollingRecreate.", deployment=RECREATE),
            level=Level.NOTE,
            versions=UNCLEAR_DEFAULT,
        )


def needs_grove(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.nodes > 1:
            yield RuleResult(
                location=Location(component.name, "field", ("multinode",)),
                message=f"{component.name} spans {component.nodes} nodes, which requires Grove or "
                "LeaderWorkerSet",
                fix=Fix(text="Install Grove or LeaderWorkerSet with the platform."),
            )


def _has_adapter(deployment: ServingDeployment, component: Component) -> bool:
    """Whether it has a scaling adapter. v1beta1: the field exists; v1alpha1: `enabled` is true."""
    adapter = deployment.pods[component.name].cursor["scalingAdapter"].value
    if deployment.api_version == V1ALPHA1:
        return isinstance(adapter, Mapping) and adapter.get("enabled") is True
    return adapter is not None


def _adapter(deployment: ServingDeployment) -> Mapping[str, bool]:
    return {"enabled": True} if deployment.api_version == V1ALPHA1 else {}


def two_owners(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        if _has_adapter(deployment, component) and not cursor["replicas"].is_absent:
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"{component.name} sets replicas {component.replicas}, which its scaling "
                "adapter owns",
                fix=Fix(text="Remove replicas.", fields={"replicas": None}),
            )


def wrong_target(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for index, root in enumerate(deployment.documents):
        if root["kind"].value not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        target = root.at("spec", "scaleTargetRef").value
        target = as_mapping(target)
        kind, name = target.get("kind"), str(target.get("name", ""))
        in_file = any(
            other["kind"].value == kind and other.at("metadata", "name").value == name
            for other in deployment.documents
        )
        is_operators = f"{name}-".startswith(f"{deployment.name}-") and not in_file
        if is_operators and kind != "DynamoGraphDeploymentScalingAdapter":
            yield RuleResult(
                location=Location("", "document", (index, "spec", "scaleTargetRef")),
                message=f"{root['kind'].value} scales {kind or 'a Deployment'} {name}, which the "
                "operator owns",
                fix=Fix(text="Target the DynamoGraphDeploymentScalingAdapter of that name."),
            )
            continue
        component = next(
            (c for c in deployment.components if name == f"{deployment.name}-{c.name.lower()}"),
            None,
        )
        if component and not _has_adapter(deployment, component):
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"{root['kind'].value} scales {component.name}, but the file sets its "
                "replicas",
                fix=Fix(
                    text="Add a scaling adapter and remove replicas.",
                    fields={"scalingAdapter": _adapter(deployment), "replicas": None},
                ),
            )


def planner_and_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    planners = deployment.with_role(Role.PLANNER)
    argv = " ".join(" ".join(launch.argv) for c in planners for launch in c.launches)
    if not planners or re.search(r"advisory[\"']?\s*[:=]\s*[\"']?true", argv, re.IGNORECASE):
        return
    for component in _pools(deployment):
        cursor = deployment.pods[component.name].cursor
        if not cursor["replicas"].is_absent and not _has_adapter(deployment, component):
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"the planner scales {component.name}, but the file sets replicas "
                f"{component.replicas}",
                fix=Fix(
                    text="Add a scaling adapter and remove replicas.",
                    fields={"scalingAdapter": _adapter(deployment), "replicas": None},
                ),
            )


def no_replicas(deployment: ServingDeployment) -> Iterable[RuleResult]:
    has_planner = bool(deployment.with_role(Role.PLANNER))
    for component in deployment.components:
        adapter = deployment.pods[component.name].cursor["scalingAdapter"]
        others = any(c.replicas for c in deployment.with_role(component.role))
        may_serve = has_planner or others or not adapter.is_absent
        if component.replicas == 0 and component.role in (*WORKERS, Role.FRONTEND):
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"{component.name} has 0 replicas",
                fix=Fix(text="Set replicas to at least 1.", fields={"replicas": 1}),
                level=Level.NOTE if may_serve else None,
            )


def single_frontend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.with_role(Role.FRONTEND):
        if component.replicas == 1 and deployment.gpus:
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message="there is only one frontend",
                fix=Fix(text="Set replicas to 2 or more.", fields={"replicas": 2}),
            )
