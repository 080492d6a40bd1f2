"""Rules about what the operator's admission webhook and the CRD refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.containers import processes
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Role
from penstock.manifests.pods import V1BETA1
from penstock.serving.deployment import ServingDeployment

V1BETA1_OPERATOR = Versions(operator=">=1.2")
TOPOLOGY = ("spec", "topologyConstraint")
GPU_TYPES = ("worker", "prefill", "decode")


@rule(
    id="PS776",
    title="incomplete topology constraint",
    level=Level.ERROR,
    cause="A topologyConstraint of a component needs one of the deployment, and that of the "
    "deployment needs a packDomain unless a component has one.",
    effect="The admission webhook rejects the deployment.",
    remedy="Set spec.topologyConstraint.packDomain.",
    source="validateDynamoGraphDeploymentSpec in webhook/validation/dynamographdeployment.go; "
    "dynamo#6375, dynamo#12448",
    versions=Versions(operator=">=1.1"),
)
def topology_constraint(deployment: ServingDeployment) -> Iterable[RuleResult]:
    own = deployment.spec.get("topologyConstraint")
    with_own = [
        component.name
        for component in deployment.components
        if not deployment.pods[component.name].cursor["topologyConstraint"].is_absent
    ]
    if with_own and own is None:
        yield RuleResult(
            location=Location(with_own[0], "field", ("topologyConstraint",)),
            message=f"{with_own[0]} has a topologyConstraint, but the deployment has none",
            fix=Fix(text="Set spec.topologyConstraint with clusterTopologyName."),
        )
    if isinstance(own, Mapping) and not own.get("packDomain") and not with_own:
        yield RuleResult(
            location=Location("", "manifest", TOPOLOGY),
            message="spec.topologyConstraint has no packDomain, and no component has a constraint",
            fix=Fix(text="Set packDomain to a domain of the topology, such as rack."),
        )


def _gms(deployment: ServingDeployment, name: str) -> Mapping[str, Any] | None:
    value = deployment.pods[name].cursor.at("experimental")["gpuMemoryService"].value
    return value if isinstance(value, Mapping) else None


@rule(
    id="PS777",
    title="GPU memory service without its requirements",
    level=Level.ERROR,
    cause="gpuMemoryService needs a component of type worker, prefill or decode with a GPU limit, "
    "and its extraClientContainers must be containers of the pod, each named once.",
    effect="The admission webhook rejects the deployment.",
    remedy="Move gpuMemoryService to a worker, or correct the names of the containers.",
    source="validateGPUMemoryServiceSpec in webhook/validation/shared_v1beta1.go",
    versions=V1BETA1_OPERATOR,
)
def gpu_memory_service(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.api_version != V1BETA1:
        return
    for component in deployment.components:
        service = _gms(deployment, component.name)
        if service is None:
            continue
        for message in _gms_problems(deployment, component.name, service):
            yield RuleResult(
                location=Location(component.name, "field", ("experimental", "gpuMemoryService")),
                message=message,
                fix=Fix(text="Correct gpuMemoryService."),
            )


def _gms_problems(
    deployment: ServingDeployment, name: str, service: Mapping[str, Any]
) -> Iterator[str]:
    pod, component = deployment.pods[name], deployment.component(name)
    if pod.kind not in GPU_TYPES:
        yield f"gpuMemoryService is set on the type {pod.kind or '(none)'}"
    elif not component.gpus:
        yield "gpuMemoryService is set, but the container main has no GPU limit"
    clients = service.get("extraClientContainers")
    names = [str(one) for one in clients] if isinstance(clients, list) else []
    known = {str(container.cursor["name"].value) for container in pod.containers}
    if service.get("mode", "IntraPod") != "IntraPod":
        if names:
            yield "extraClientContainers is set with the mode InterPod"
        return
    for client in dict.fromkeys(names):
        if client not in known:
            yield f"extraClientContainers names {client}, which is no container of the pod"
        if names.count(client) > 1:
            yield f"extraClientContainers names {client} twice"


@rule(
    id="PS778",
    title="incomplete eppConfig",
    level=Level.ERROR,
    cause="eppConfig needs exactly one of config and configMapRef, the latter with a name; it "
    "belongs to a component of type epp.",
    effect="The API server or the admission webhook rejects the deployment.",
    remedy="Set only config or configMapRef, on the endpoint picker.",
    source="validateEPPConfig in webhook/validation/shared_v1beta1.go; XValidation rules of "
    "EPPConfig in the CRD",
    versions=V1BETA1_OPERATOR,
)
def epp_config(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor["eppConfig"]
        if not isinstance(cursor.value, Mapping):
            continue
        reference, config = cursor["configMapRef"], cursor["config"]
        message = ""
        if component.role is not Role.EPP:
            message = f"eppConfig is set on {component.name}, which is no endpoint picker"
        elif reference.is_absent == config.is_absent:
            has_both = "has both config and configMapRef"
            has_none = "has neither config nor configMapRef"
            message = f"eppConfig {has_none if config.is_absent else has_both}"
        elif isinstance(reference.value, Mapping) and not reference.value.get("name"):
            message = "configMapRef has no name"
        if message:
            yield RuleResult(
                location=Location(component.name, "field", ("eppConfig",)),
                message=message,
                fix=Fix(text="Set exactly one of config and configMapRef."),
            )


@rule(
    id="PS780",
    title="discovery that does not leave the pod",
    level=Level.ERROR,
    cause="The discovery backend is mem, which lives in one process, or file, whose folder is in "
    "no volume, but the components run in several pods.",
    effect="The frontend finds no worker, and /v1/models stays empty.",
    remedy="Remove the setting; the operator uses Kubernetes.",
    source="component_common.go (DYN_DISCOVERY_BACKEND=kubernetes unless set); KVStoreManager in "
    "lib/runtime/src/storage/kv of ai-dynamo/dynamo",
    versions=Versions(dynamo=">=1.0"),
)
def discovery_in_the_pod(deployment: ServingDeployment) -> Iterable[RuleResult]:
    pods = sum(component.replicas * component.nodes for component in deployment.components)
    if pods < 2:
        return
    for process in processes(deployment):
        if not (process.launch.module or "").startswith("dynamo."):
            continue
        found = process.text("--discovery-backend", "DYN_DISCOVERY_BACKEND")
        if found is None or found[0] not in ("mem", "file"):
            continue
        if found[0] == "file" and process.mount_paths:
            continue
        yield RuleResult(
            location=found[1],
            message=f"the discovery backend is {found[0]}, but the deployment has {pods} pods",
            fix=Fix(text="Remove the discovery backend; the operator uses Kubernetes."),
        )
        return


@rule(
    id="PS781",
    title="restart order of unknown components",
    level=Level.ERROR,
    cause="spec.restart.strategy.order must name every component exactly once.",
    effect="The admission webhook rejects the deployment.",
    remedy="Name every component once, or remove the order.",
    source="validateRestartStrategy in webhook/validation/dynamographdeployment.go",
    versions=V1BETA1_OPERATOR,
)
def restart_order(deployment: ServingDeployment) -> Iterable[RuleResult]:
    restart = deployment.spec.get("restart")
    strategy = restart.get("strategy") if isinstance(restart, Mapping) else None
    order = strategy.get("order") if isinstance(strategy, Mapping) else None
    if not isinstance(order, list) or not order:
        return
    names = [component.name for component in deployment.components]
    if sorted(map(str, order)) != sorted(names):
        yield RuleResult(
            location=Location("", "manifest", ("spec", "restart", "strategy", "order")),
            message=f"the order names {', '.join(map(str, order))}; the components are "
            f"{', '.join(names)}",
            fix=Fix(text="Name every component exactly once."),
        )
