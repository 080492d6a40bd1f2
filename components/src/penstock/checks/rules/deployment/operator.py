"""Rules of the operator's further features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.deployment.manifest import annotations_of, deployment_spec
from penstock.engines.settings import Location
from penstock.manifests.deployment import Role
from penstock.manifests.pods import V1BETA1
from penstock.serving.deployment import ServingDeployment

INTRA_POD = "IntraPod"  # both modes' default in v1beta1


@rule(
    id="PS759",
    title="a scaling adapter with fields",
    level=Level.WARNING,
    cause="v1beta1's scalingAdapter is an empty object; `enabled` was v1alpha1's.",
    effect="A strict API server refuses it, another drops the field.",
    remedy="scalingAdapter: {}.",
    source="dynamocomponentdeployment_types.go@006b6e10; written by the 1.6.1 profiler itself",
)
def adapter_form(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        adapter = deployment.pods[component.name].cursor["scalingAdapter"]
        is_beta = deployment.api_version == V1BETA1
        if is_beta and isinstance(adapter.value, Mapping) and adapter.value:
            yield RuleResult(
                location=Location(component.name, "field", ("scalingAdapter",)),
                message=f"scalingAdapter {dict(adapter.value)}: v1beta1 has no fields there",
                fix=Fix(text="write an empty map", fields={"scalingAdapter": {}}),
            )


@rule(
    id="PS760",
    title="minAvailable on a component",
    level=Level.WARNING,
    cause="Deprecated in 1.6, immutable, and an error outside Grove.",
    effect="Refused, or not to be changed later.",
    remedy="providerOverride.",
    source="shared_v1beta1.go@03bd8b47",
)
def grove_only(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        if not cursor["minAvailable"].is_absent:
            yield RuleResult(
                location=Location(component.name, "field", ("minAvailable",)),
                message="minAvailable is deprecated in 1.6, immutable, and Grove's alone",
                fix=Fix(text="use providerOverride.value.spec.minAvailable"),
            )


@rule(
    id="PS761",
    title="a KV transfer policy that contradicts itself",
    level=Level.ERROR,
    cause="labelKey excludes clusterTopologyName; preferredWeight belongs to preferred alone.",
    effect="Refused at admission.",
    remedy="Keep one.",
    source="dynamographdeployment_types.go@0fddc01b; dynamo#12448",
)
def transfer_policy(deployment: ServingDeployment) -> Iterable[RuleResult]:
    experimental = deployment_spec(deployment).get("experimental")
    policy = experimental.get("kvTransferPolicy") if isinstance(experimental, Mapping) else None
    if not isinstance(policy, Mapping):
        return
    location = Location("", "manifest", ("spec", "experimental", "kvTransferPolicy"))
    if bool(policy.get("labelKey")) == bool(policy.get("clusterTopologyName")):
        yield RuleResult(
            location=location,
            message="kvTransferPolicy needs labelKey or clusterTopologyName, and not both",
            fix=Fix(text="keep one"),
        )
    preferred = policy.get("enforcement") == "preferred"
    if preferred != ("preferredWeight" in policy):
        yield RuleResult(
            location=location,
            message=f"enforcement {policy.get('enforcement', 'required')} "
            f"{'without' if preferred else 'with'} preferredWeight",
            fix=Fix(text="preferredWeight belongs to preferred"),
        )


@rule(
    id="PS762",
    title="failover without what it needs",
    level=Level.ERROR,
    cause="Failover needs the GPU memory service in the same mode, and discovery by container "
    "within one pod.",
    effect="Refused at admission.",
    remedy="Add them.",
    source="dynamo#8157, dynamo#10934",
)
def failover(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        experimental = deployment.pods[component.name].cursor["experimental"]
        value = experimental.value if isinstance(experimental.value, Mapping) else {}
        wanted, memory = value.get("failover"), value.get("gpuMemoryService")
        if not isinstance(wanted, Mapping):
            continue
        wanted_mode = wanted.get("mode", INTRA_POD)
        location = Location(component.name, "field", ("experimental", "failover"))
        if not isinstance(memory, Mapping):
            yield RuleResult(
                location=location,
                message="failover without gpuMemoryService",
                fix=Fix(
                    text="add it",
                    fields={"experimental/gpuMemoryService": {"mode": wanted_mode}},
                ),
            )
        elif memory.get("mode", INTRA_POD) != wanted_mode:
            yield RuleResult(
                location=location,
                message=f"failover {wanted_mode} and gpuMemoryService "
                f"{memory.get('mode', INTRA_POD)}",
                fix=Fix(
                    text="use one mode",
                    fields={"experimental/gpuMemoryService/mode": wanted_mode},
                ),
            )
        mode = annotations_of(deployment).get("nvidia.com/dynamo-kube-discovery-mode")
        if wanted_mode == INTRA_POD and mode != "container":
            yield RuleResult(
                location=location,
                message="failover in one pod without discovery by container",
                fix=Fix(
                    text="annotate the deployment",
                    deployment={
                        "metadata/annotations/nvidia.com~1dynamo-kube-discovery-mode": "container"
                    },
                ),
            )


@rule(
    id="PS763",
    title="several endpoint pickers",
    level=Level.ERROR,
    cause="The endpoint picker that takes eppConfig has exactly one replica; that of 1.6 "
    "may have more, with DYN_ROUTER_REPLICA_SYNC.",
    effect="Refused at admission.",
    remedy="One.",
    source="dynamo#14756",
)
def endpoint_picker(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        epp = deployment.pods[component.name].cursor["eppConfig"]
        # The picker of 1.6 replicates; the older one, which takes eppConfig, does not.
        if component.role is Role.EPP and component.replicas != 1 and not epp.is_absent:
            yield RuleResult(
                location=Location(component.name, "field", ("replicas",)),
                message=f"{component.replicas} replicas of the endpoint picker",
                fix=Fix(text="exactly one", fields={"replicas": 1}),
            )


@rule(
    id="PS764",
    title="a kind that is gone",
    level=Level.ERROR,
    cause="DynamoCheckpoint was removed in 1.5.",
    effect="No matches for kind.",
    remedy="PodSnapshot.",
    source="dynamo#14076",
)
def gone_kinds(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for index, root in enumerate(deployment.documents):
        if root["kind"].value == "DynamoCheckpoint":
            yield RuleResult(
                location=Location("", "document", (index, "kind")),
                message="DynamoCheckpoint was removed in 1.5",
                fix=Fix(text="use the Snapshot operator's PodSnapshot"),
            )
