"""Rules about updates and replicas: downtime, spare GPUs, and the owner of the replica count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import KUBERNETES, OPERATOR, Versions
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


@rule(
    id="PS801",
    title="update removes all replicas at once",
    level=Level.WARNING,
    cause="maxUnavailable covers every replica of the pool, and maxSurge is 0.",
    effect="Requests fail with 404 and 503 during each update.",
    remedy="Set max-surge to 1 and max-unavailable to 0.",
    source="dynamo#13622; rolling-updates.mdx@11db1467",
    versions=OPERATOR,
)
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


@rule(
    id="PS802",
    title="update stops all workers before new ones start",
    level=Level.WARNING,
    cause="deployment-strategy is Recreate.",
    effect="Each change of a worker causes an outage of minutes while the weights load.",
    remedy="Use RollingUpdate. It needs free GPUs for one more replica of each pool.",
    source="rolling-updates.mdx@11db1467",
    versions=OPERATOR,
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


@rule(
    id="PS803",
    title="not enough free GPUs for an update",
    level=Level.WARNING,
    cause="A change of any worker starts one more replica of each pool before old ones stop, "
    "and hardware.nodes has no GPUs for them.",
    effect="New workers stay Pending and the update never completes, while the old ones serve.",
    remedy="Leave GPUs free, add a node for the time of the update, or suppress the rule and "
    "state how updates are done.",
    source="rolling-updates.mdx@11db1467",
    versions=OPERATOR,
    exceptions="Pools that span nodes, have the strategy Recreate or a max-surge of 0 are not "
    "counted. Without hardware.nodes nothing is reported.",
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


@rule(
    id="PS804",
    title="Grove's update strategy is Coherent",
    level=Level.WARNING,
    cause="Grove's Coherent strategy blocks scaling during an update and can stall.",
    effect="The update may not complete, and autoscaling is blocked. The webhook of the operator "
    "of August 2026 accepts only RollingRecreate and OnDelete.",
    remedy="Set RollingRecreate explicitly: sources disagree on the default in 1.6.",
    source="grove#873; rolling-updates.mdx@11db1467",
    versions=OPERATOR,
    other_levels=(Level.NOTE,),
    exceptions="An unset strategy of a manifest with multi-node components is a note.",
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


@rule(
    id="PS805",
    title="multi-node components need Grove or LeaderWorkerSet",
    level=Level.NOTE,
    cause="Multi-node components run as Grove PodCliques or LeaderWorkerSets.",
    effect="Without Grove or LeaderWorkerSet, the operator rejects the deployment "
    "(NoOrchestratorAvailable).",
    remedy="Set global.grove.install in the platform chart, or install LeaderWorkerSet.",
    source="dynamo#2564; operator webhook",
    versions=OPERATOR,
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


@rule(
    id="PS806",
    title="replicas and a scaling adapter",
    level=Level.WARNING,
    cause="A scaling adapter owns the replica count, but the file sets it as well.",
    effect="An apply that changes the number reverts what the autoscaler did, or the operator's "
    "webhook rejects it.",
    remedy="Remove replicas.",
    source="dynamo#12080; autoscaling.md",
    versions=OPERATOR,
)
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


@rule(
    id="PS807",
    title="the autoscaler targets the wrong object",
    level=Level.WARNING,
    cause="The HPA or ScaledObject targets an object that the operator reconciles, or a "
    "component without a scaling adapter.",
    effect="The operator and the autoscaler revert each other's changes.",
    remedy="Target the DynamoGraphDeploymentScalingAdapter.",
    source="autoscaling.md; dynamo#12080, dynamo#4420",
    versions=OPERATOR,
    exceptions="A target that the file itself defines is accepted.",
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


@rule(
    id="PS808",
    title="the planner scales a pool with fixed replicas",
    level=Level.NOTE,
    cause="The planner scales the pool, but the file sets its replicas.",
    effect="Each apply resets the planner's value, and the planner does not see manual edits.",
    remedy="Add a scaling adapter and remove replicas.",
    source="dynamo#4420, dynamo#12080",
    versions=OPERATOR,
    exceptions="Nothing is reported if the planner is advisory.",
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


@rule(
    id="PS809",
    title="pool without replicas",
    level=Level.WARNING,
    cause="replicas is 0.",
    effect="Requests fail with 404 or 503 until the pool is scaled up.",
    remedy="Set replicas to at least 1.",
    source="production-stack#1003",
    versions=KUBERNETES,
    other_levels=(Level.NOTE,),
    exceptions="It is a note with a planner or a scaling adapter, which may raise the number, and "
    "if another component of the role has replicas.",
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


@rule(
    id="PS810",
    title="single frontend",
    level=Level.NOTE,
    cause="A single frontend serves all requests to the GPUs.",
    effect="Its restart breaks every open stream.",
    remedy="Use two frontends with replica sync, which graphs enable by default.",
    source="Kubernetes: the connections of a pod end with it; benchmarks/results/drill.json (kill)",
    versions=KUBERNETES,
    exceptions="Deployments without GPUs are not checked.",
)
def single_frontend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.with_role(Role.FRONTEND):
        if component.replicas == 1 and deployment.gpus:
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message="there is only one frontend",
                fix=Fix(text="Set replicas to 2 or more.", fields={"replicas": 2}),
            )
