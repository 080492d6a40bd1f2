"""Rules about optional features of the operator: failover, Grove, endpoint picker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Role
from penstock.manifests.pods import V1BETA1
from penstock.serving.deployment import ServingDeployment

GROVE_ANNOTATION = "nvidia.com/enable-grove"
INTRA_POD = "IntraPod"  # v1beta1's default of both modes


def adapter_form(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        adapter = deployment.pods[component.name].cursor["scalingAdapter"]
        is_beta = deployment.api_version == V1BETA1
        if is_beta and isinstance(adapter.value, Mapping) and adapter.value:
            yield RuleResult(
                location=Location(component.name, "field", ("scalingAdapter",)),
                message="scalingAdapter has fields that v1beta1 lacks: "
                f"{', '.join(map(str, adapter.value))}",
                fix=Fix(text="Write an empty map.", fields={"scalingAdapter": {}}),
            )


def grove_only(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        location = Location(component.name, "field", ("minAvailable",))
        if cursor["minAvailable"].is_absent:
            continue
        if str(deployment.annotations().get(GROVE_ANNOTATION)).lower() == "false":
            yield RuleResult(
                location=location,
                message="minAvailable is valid only with Grove, which the annotation "
                f"{GROVE_ANNOTATION} disables",
                fix=Fix(text="Remove minAvailable, or the annotation."),
                level=Level.ERROR,
                versions=Versions(operator=">=1.3"),
            )
        else:
            yield RuleResult(
                location=location,
                message="minAvailable is deprecated in 1.6, immutable, and valid only with Grove",
                fix=Fix(text="Use providerOverride.value.spec.minAvailable."),
            )


def transfer_policy(deployment: ServingDeployment) -> Iterable[RuleResult]:
    experimental = deployment.spec.get("experimental")
    policy = experimental.get("kvTransferPolicy") if isinstance(experimental, Mapping) else None
    if not isinstance(policy, Mapping):
        return
    location = Location("", "manifest", ("spec", "experimental", "kvTransferPolicy"))
    if bool(policy.get("labelKey")) == bool(policy.get("clusterTopologyName")):
        yield RuleResult(
            location=location,
            message="kvTransferPolicy needs exactly one of labelKey and clusterTopologyName",
            fix=Fix(text="Set exactly one of them."),
        )
    is_preferred = policy.get("enforcement") == "preferred"
    if is_preferred != ("preferredWeight" in policy):
        yield RuleResult(
            location=location,
            message=f"enforcement {policy.get('enforcement', 'required')} "
            f"{'without' if is_preferred else 'with'} preferredWeight",
            fix=Fix(text="Add preferredWeight." if is_preferred else "Remove preferredWeight."),
        )


def failover(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        experimental = deployment.pods[component.name].cursor["experimental"]
        value = as_mapping(experimental.value)
        failover_config, memory = value.get("failover"), value.get("gpuMemoryService")
        if not isinstance(failover_config, Mapping):
            continue
        failover_mode = failover_config.get("mode", INTRA_POD)
        location = Location(component.name, "field", ("experimental", "failover"))
        if not isinstance(memory, Mapping):
            yield RuleResult(
                location=location,
                message="failover is set without gpuMemoryService",
                fix=Fix(
                    text="Add gpuMemoryService with the same mode.",
                    fields={"experimental/gpuMemoryService": {"mode": failover_mode}},
                ),
            )
        elif memory.get("mode", INTRA_POD) != failover_mode:
            yield RuleResult(
                location=location,
                message=f"failover has mode {failover_mode}, but gpuMemoryService has "
                f"{memory.get('mode', INTRA_POD)}",
                fix=Fix(
                    text="Use the same mode for both.",
                    fields={"experimental/gpuMemoryService/mode": failover_mode},
                ),
            )
        mode = deployment.annotations().get("nvidia.com/dynamo-kube-discovery-mode")
        if failover_mode == INTRA_POD and mode != "container":
            yield RuleResult(
                location=location,
                message="failover within one pod needs the discovery mode container",
                fix=Fix(
                    text="Annotate the deployment with the discovery mode container.",
                    deployment={
                        "metadata/annotations/nvidia.com~1dynamo-kube-discovery-mode": "container"
                    },
                ),
            )


def endpoint_picker(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        epp = deployment.pods[component.name].cursor["eppConfig"]
        # The picker of 1.6 can be replicated; the older one, with eppConfig, cannot.
        if component.role is Role.EPP and component.replicas != 1 and not epp.is_absent:
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"the endpoint picker has {component.replicas} replicas",
                fix=Fix(text="Set replicas to 1.", fields={"replicas": 1}),
            )


def removed_kinds(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for index, root in enumerate(deployment.documents):
        if root["kind"].value == "DynamoCheckpoint":
            yield RuleResult(
                location=Location("", "document", (index, "kind")),
                message="DynamoCheckpoint was removed in 1.5",
                fix=Fix(text="Use PodSnapshot of the Snapshot operator."),
            )
