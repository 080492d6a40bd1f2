"""Rules about GPUs that a pod gets through DRA claims instead of nvidia.com/gpu."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Engine
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment

ENGINES = (Engine.VLLM, Engine.TRTLLM)
FIELD = ("main", "resources")


def gets_gpus_by_claims_only(component: Component, pod: Pod) -> bool:
    """Whether it has GPUs, and none of them is a resource of a container."""
    if not component.gpus or pod.claims.is_absent:
        return False
    resources = [pod.resources, *(c.cursor["resources"] for c in pod.containers)]
    amounts = [r[side] for r in resources for side in ("limits", "requests")]
    return not any("gpu" in key for amount in amounts for key, _ in amount.entries())


@rule(
    id="PS782",
    title="several nodes whose GPUs come only from DRA claims",
    level=Level.ERROR,
    cause="Before 1.4 the operator counts GPUs only in resources.requests and limits. For a "
    "component with several nodes and none there, it skips the flags that connect the nodes.",
    effect="The leader and the workers start the same command, and each looks for all GPUs in its "
    "own pod: the engine exits at startup.",
    remedy="Request the GPUs as nvidia.com/gpu, or use a newer operator.",
    source="deploy/operator/internal/dynamo/backend_vllm.go needsTensorParallelMultinodeLaunch and "
    "getGPUQuantity, backend_trtllm.go; dynamo#12164, dynamo#12166",
    versions=Versions(dynamo="<1.4"),
)
def nodes_with_claims(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        if component.nodes < 2 or component.engine not in ENGINES:
            continue
        if gets_gpus_by_claims_only(component, pod):
            yield RuleResult(
                location=Location(component.name, "field", FIELD),
                message=f"{component.name} spans {component.nodes} nodes, and its "
                f"{component.gpus} GPUs come from resource claims, which the operator does not "
                "count",
                fix=Fix(text="Request the GPUs of each node as nvidia.com/gpu instead of a claim."),
            )
