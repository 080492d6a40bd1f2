"""Rules about optional features of the operator: failover, Grove, endpoint picker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import CRD, Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Role
from penstock.manifests.pods import V1BETA1
from penstock.serving.deployment import ServingDeployment

GROVE_ANNOTATION = "nvidia.com/enable-grove"
INTRA_POD = "IntraPod"  # v1beta1's default of both modes


@rule(
    id="PS759",
    title="scalingAdapter has fields",
    level=Level.WARNING,
    cause="In v1beta1 scalingAdapter is an empty object; only v1alpha1 has `enabled`.",
    effect="The API server drops the fields, or rejects the object with strict validation.",
    remedy="Write scalingAdapter: {}.",
    source="dynamocomponentdeployment_types.go@006b6e10; written by the 1.6.1 profiler itself",
    versions=CRD,
)
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


@rule(
    id="PS760",
    title="minAvailable of a component is deprecated",
    level=Level.WARNING,
    cause="minAvailable is deprecated in 1.6, immutable, and valid only with Grove.",
    effect="The operator rejects the deployment, or the value cannot be changed later.",
    remedy="Set minAvailable in providerOverride.",
    source="shared_v1beta1.go@03bd8b47; dynamo#10532",
    versions=Versions(operator=">=1.6"),
    other_levels=(Level.ERROR,),
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


@rule(
    id="PS761",
    title="contradictory kvTransferPolicy",
    level=Level.ERROR,
    cause="labelKey and clusterTopologyName exclude each other, and preferredWeight requires "
    "enforcement: preferred.",
    effect="The admission webhook rejects the deployment.",
    remedy="Keep only one of labelKey and clusterTopologyName, and set enforcement: preferred "
    "for preferredWeight.",
    source="dynamographdeployment_types.go@0fddc01b; dynamo#12448",
    versions=Versions(operator=">=1.5"),
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


@rule(
    id="PS762",
    title="failover without its requirements",
    level=Level.ERROR,
    cause="Failover needs gpuMemoryService in the same mode, and within one pod also the "
    "discovery mode container.",
    effect="The admission webhook rejects the deployment.",
    remedy="Add gpuMemoryService and the discovery annotation.",
    source="dynamo#8157, dynamo#10934",
    versions=Versions(operator=">=1.4"),
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


@rule(
    id="PS763",
    title="more than one endpoint picker",
    level=Level.ERROR,
    cause="An endpoint picker with eppConfig must have exactly one replica. The picker of 1.6 may "
    "have more, with DYN_ROUTER_REPLICA_SYNC.",
    effect="The admission webhook rejects the deployment.",
    remedy="Set replicas to 1.",
    source="dynamo#14756",
    versions=Versions(operator=">=1.4"),
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


@rule(
    id="PS764",
    title="removed kind",
    level=Level.ERROR,
    cause="DynamoCheckpoint was removed in 1.5.",
    effect="The API server reports “no matches for kind”.",
    remedy="Use PodSnapshot.",
    source="dynamo#14076",
    versions=Versions(operator=">=1.5"),
)
def removed_kinds(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for index, root in enumerate(deployment.documents):
        if root["kind"].value == "DynamoCheckpoint":
            yield RuleResult(
                location=Location("", "document", (index, "kind")),
                message="DynamoCheckpoint was removed in 1.5",
                fix=Fix(text="Use PodSnapshot of the Snapshot operator."),
            )
