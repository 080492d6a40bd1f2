"""Rules about what the operator's admission webhook and the CRD refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import processes
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Role
from penstock.manifests.pods import V1BETA1
from penstock.serving.deployment import ServingDeployment

V1BETA1_OPERATOR = Versions(operator=">=1.2")
TOPOLOGY = ("spec", "topologyConstraint")
GPU_TYPES = ("worker", "prefill", "decode")


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
