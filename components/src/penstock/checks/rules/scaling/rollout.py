"""Rules of change: updates without downtime, spare GPUs, and who owns the replicas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.deployment.manifest import annotations_of
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Role
from penstock.manifests.pods import V1ALPHA1
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS

SURGE = "nvidia.com/deployment-rolling-update-max-surge"
UNAVAILABLE = "nvidia.com/deployment-rolling-update-max-unavailable"
STRATEGY = "nvidia.com/deployment-strategy"
GROVE = "nvidia.com/grove-update-strategy"
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
    title="an update that takes the last worker first",
    level=Level.WARNING,
    cause="maxUnavailable takes every replica of the pool and maxSurge adds none.",
    effect="404 and 503 during each update.",
    remedy="Surge 1, unavailable 0.",
    source="dynamo#13622; rolling-updates.mdx@11db1467",
)
def all_at_once(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in _pools(deployment):
        said = annotations_of(deployment, component.name)
        gone = _amount(said.get(UNAVAILABLE, "25%"), component.replicas, up=False)
        new = _amount(said.get(SURGE, "25%"), component.replicas, up=True)
        if component.replicas and gone >= component.replicas and not new:
            yield RuleResult(
                location=Location(
                    component.name, "field", ("metadata", "annotations", UNAVAILABLE)
                ),
                message=f"an update takes {gone} of {component.replicas} replicas away before any "
                "new one is ready",
                fix=Fix(
                    text="new before old",
                    fields={
                        f"metadata/annotations/{SURGE.replace('/', '~1')}": "1",
                        f"metadata/annotations/{UNAVAILABLE.replace('/', '~1')}": "0",
                    },
                ),
            )


@rule(
    id="PS802",
    title="workers stopped before new ones start",
    level=Level.WARNING,
    cause="deployment-strategy is Recreate.",
    effect="An outage of minutes at each change of a worker, while weights load.",
    remedy="RollingUpdate; it needs free GPUs for one more replica of each pool.",
    source="rolling-updates.mdx@11db1467",
)
def recreate(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in _pools(deployment):
        if annotations_of(deployment, component.name).get(STRATEGY) == "Recreate":
            yield RuleResult(
                location=Location(component.name, "field", ("metadata", "annotations", STRATEGY)),
                message=f"an update of {component.name} stops all its workers first",
                fix=Fix(
                    text="RollingUpdate with surge 1",
                    fields={f"metadata/annotations/{STRATEGY.replace('/', '~1')}": "RollingUpdate"},
                ),
            )


@rule(
    id="PS803",
    title="no GPUs left for an update",
    level=Level.WARNING,
    cause="A change of any worker starts one more replica of each pool before old ones stop, "
    "and hardware.nodes has no room for them.",
    effect="New workers stay Pending, and the update never ends; the old ones serve on.",
    remedy="Leave room, lend a node for updates, or say why not in checks.suppress.",
    source="rolling-updates.mdx@11db1467",
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
                message=f"an update needs {needed} spare GPUs, one replica more of each pool, and "
                f"{nodes} node{'s have' if nodes > 1 else ' has'} {max(0, free)}",
                fix=Fix(text="leave GPUs free, or plan updates with a second node"),
            )


def _surges(deployment: ServingDeployment, component: Component) -> bool:
    said = annotations_of(deployment, component.name)
    return said.get(STRATEGY) != "Recreate" and bool(
        _amount(said.get(SURGE, "25%"), component.replicas, up=True)
    )


@rule(
    id="PS804",
    title="coherent updates",
    level=Level.WARNING,
    cause="Grove's Coherent strategy blocks scaling meanwhile and can stall.",
    effect="An update that does not end; autoscaling stands still.",
    remedy="RollingRecreate, set explicitly: sources disagree on 1.6's default.",
    source="grove#873; rolling-updates.mdx@11db1467",
)
def coherent(deployment: ServingDeployment) -> Iterable[RuleResult]:
    said = annotations_of(deployment).get(GROVE)
    multinode = [c for c in deployment.components if c.nodes > 1]
    if said == "Coherent":
        yield RuleResult(
            location=Location("", "manifest", ("metadata", "annotations", GROVE)),
            message="grove-update-strategy Coherent",
            fix=Fix(text="use RollingRecreate", deployment=RECREATE),
        )
    elif said is None and multinode and not deployment.is_graph:
        yield RuleResult(
            location=Location("", "manifest", ("metadata",)),
            message="multi-node components and no grove-update-strategy: sources disagree on the "
            "default",
            fix=Fix(text="annotate the deployment", deployment=RECREATE),
            level=Level.NOTE,
        )


@rule(
    id="PS805",
    title="several nodes need an orchestrator",
    level=Level.NOTE,
    cause="Multi-node components run as Grove PodCliques or LeaderWorkerSets.",
    effect="Without one of them the deployment is refused: NoOrchestratorAvailable.",
    remedy="global.grove.install, or LWS.",
    source="dynamo#2564; operator webhook",
)
def needs_grove(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.nodes > 1:
            yield RuleResult(
                location=Location(component.name, "field", ("multinode",)),
                message=f"{component.name} spans {component.nodes} nodes",
                fix=Fix(text="install Grove or LeaderWorkerSet with the platform"),
            )


def _has_adapter(deployment: ServingDeployment, component: Component) -> bool:
    """In v1beta1 the field alone is enough; v1alpha1's is off unless it says `enabled`."""
    adapter = deployment.pods[component.name].cursor["scalingAdapter"].value
    if deployment.api_version == V1ALPHA1:
        return isinstance(adapter, Mapping) and adapter.get("enabled") is True
    return adapter is not None


def _adapter(deployment: ServingDeployment) -> Mapping[str, bool]:
    return {"enabled": True} if deployment.api_version == V1ALPHA1 else {}


@rule(
    id="PS806",
    title="two owners of the replicas",
    level=Level.ERROR,
    cause="A scaling adapter owns the replicas, and the file sets them as well.",
    effect="Each apply scales back what the autoscaler did.",
    remedy="Leave replicas out.",
    source="dynamo#12080; autoscaling.md",
)
def two_owners(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        if _has_adapter(deployment, component) and not cursor["replicas"].is_absent:
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"{component.name} has replicas {component.replicas} and a scaling adapter "
                "that owns them",
                fix=Fix(text="leave replicas out", fields={"replicas": None}),
            )


@rule(
    id="PS807",
    title="an autoscaler on the wrong object",
    level=Level.ERROR,
    cause="The HPA or ScaledObject targets what the operator reconciles, or a component "
    "without "
    "a scaling adapter.",
    effect="The operator and the autoscaler undo each other.",
    remedy="Target the DynamoGraphDeploymentScalingAdapter.",
    source="autoscaling.md; dynamo#12080, dynamo#4420",
)
def wrong_target(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for index, root in enumerate(deployment.documents):
        if root["kind"].value not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        target = root.at("spec", "scaleTargetRef").value
        target = target if isinstance(target, Mapping) else {}
        kind, name = target.get("kind"), str(target.get("name", ""))
        in_file = any(
            other["kind"].value == kind and other.at("metadata", "name").value == name
            for other in deployment.documents
        )
        ours = f"{name}-".startswith(f"{deployment.name}-") and not in_file
        if ours and kind != "DynamoGraphDeploymentScalingAdapter":
            yield RuleResult(
                location=Location("", "document", (index, "spec", "scaleTargetRef")),
                message=f"{root['kind'].value} scales {kind or 'a Deployment'} {name}, which the "
                "operator owns",
                fix=Fix(text="scale the DynamoGraphDeploymentScalingAdapter of that name"),
            )
            continue
        component = next(
            (c for c in deployment.components if name == f"{deployment.name}-{c.name.lower()}"),
            None,
        )
        if component and not _has_adapter(deployment, component):
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"{root['kind'].value} scales {component.name}, whose replicas the "
                "file sets",
                fix=Fix(
                    text="give it a scaling adapter and leave replicas out",
                    fields={"scalingAdapter": _adapter(deployment), "replicas": None},
                ),
            )


@rule(
    id="PS808",
    title="a planner beside fixed replicas",
    level=Level.WARNING,
    cause="The planner scales the pool, and the file sets its replicas.",
    effect="Each apply resets what the planner chose; a hand edit blinds it.",
    remedy="Leave replicas out, with a scaling adapter.",
    source="dynamo#4420, dynamo#12080",
)
def planner_and_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    planners = deployment.with_role(Role.PLANNER)
    said = " ".join(" ".join(launch.argv) for c in planners for launch in c.launches)
    if not planners or re.search(r"advisory[\"']?\s*[:=]\s*[\"']?true", said, re.IGNORECASE):
        return
    for component in _pools(deployment):
        cursor = deployment.pods[component.name].cursor
        if not cursor["replicas"].is_absent and not _has_adapter(deployment, component):
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"the planner scales {component.name}, and the file says "
                f"{component.replicas}",
                fix=Fix(
                    text="leave replicas out of the file, with a scaling adapter",
                    fields={"scalingAdapter": _adapter(deployment), "replicas": None},
                ),
            )


@rule(
    id="PS809",
    title="a pool without replicas",
    level=Level.WARNING,
    cause="replicas is 0.",
    effect="Requests fail with 404 or 503 until somebody scales it.",
    remedy="At least 1.",
    source="production-stack#1003",
)
def no_replicas(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.replicas == 0 and component.role in (*WORKERS, Role.FRONTEND):
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"{component.name} has no replica",
                fix=Fix(text="at least 1", fields={"replicas": 1}),
            )


@rule(
    id="PS810",
    title="a single frontend",
    level=Level.NOTE,
    cause="One frontend is in front of the GPUs.",
    effect="Its restart breaks every stream: 32 of 32 in our measurement.",
    remedy="Two, with replica sync; graphs have it on.",
    source="peers' comparison, measured with Dynamo 1.6.1 mockers",
)
def single_frontend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.with_role(Role.FRONTEND):
        if component.replicas == 1 and deployment.gpus:
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message="one frontend",
                fix=Fix(text="two or more", fields={"replicas": 2}),
            )
