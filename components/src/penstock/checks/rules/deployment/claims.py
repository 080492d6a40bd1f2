"""Rules about GPUs that a pod gets through DRA claims instead of nvidia.com/gpu."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
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
