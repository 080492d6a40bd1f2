"""Rules about the ports of a pod that probes and Services use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import Process, mappings, processes
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component
from penstock.manifests.pods import Container, Pod
from penstock.serving.deployment import ServingDeployment

FRONTEND = "dynamo.frontend"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
# The name that the operator's probes use, by the component's type (component_frontend.go,
# component_worker.go, component_planner.go), and its number.
PORT_NAMES = {
    "frontend": ("http", 8000),
    "worker": ("system", 9090),
    "prefill": ("system", 9090),
    "decode": ("system", 9090),
}
# Probes that the operator adds; a frontend has no startup probe.
ADDED = {"frontend": PROBES[1:]}


def own_probe(pod: Pod, container: Container, name: str) -> Mapping[str, Any] | None:
    """A probe in the manifest; v1alpha1 also has them at the component."""
    cursor = container.cursor[name]
    if cursor.is_absent and container.is_main:
        cursor = pod.cursor[name]
    return cursor.value if isinstance(cursor.value, Mapping) else None


def _probed(probe: Mapping[str, Any]) -> Any:
    """The port of a probe, by number or name; None for `exec` and gRPC, which has only numbers."""
    for kind in ("httpGet", "tcpSocket"):
        if isinstance(action := probe.get(kind), Mapping):
            return action.get("port")
    return None


def named_ports(container: Container) -> dict[str, Any]:
    ports = mappings(container.cursor["ports"].value)
    return {str(port["name"]): port.get("containerPort") for port in ports if port.get("name")}


def unnamed_port(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        kind = pod.sub_kind if pod.sub_kind in PORT_NAMES else pod.kind
        main = pod.containers[0]
        if kind not in PORT_NAMES or not isinstance(main.cursor["ports"].value, list):
            continue
        name, default = PORT_NAMES[kind]
        number = _system_port(component) if name == "system" else None
        if not main.cursor["ports"].value or name in named_ports(main):
            continue
        replaced = [own_probe(pod, main, probe) for probe in ADDED.get(kind, PROBES)]
        if not all(probe is not None and _probed(probe) != name for probe in replaced):
            yield RuleResult(
                location=Location(component.name, "field", ("main", "ports")),
                message=f"`ports` has no port named {name}, which the operator's probes use",
                fix=_with_port(main, name, number or default),
            )


def _with_port(main: Container, name: str, number: str | int) -> Fix:
    """A port is listed once: the key of the list is its number and protocol."""
    for other, listed in named_ports(main).items():
        if str(listed) == str(number):
            return Fix(text=f"Rename the port {other} ({number}) to {name}.")
    return Fix(text=f"Add {{name: {name}, containerPort: {number}}} to `ports`.")


def _system_port(component: Component) -> str | None:
    """The port on which a worker serves its probes, if the container sets it."""
    ports = (launch.env.get("DYN_SYSTEM_PORT") for launch in component.launches)
    return next((port for port in ports if port and port.isdigit()), None)


def unknown_probe_port(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for container in pod.containers:
            known = set(named_ports(container))
            if container.is_main and container.cursor["ports"].is_absent:
                known |= {"http", "system", "nixl", "metrics", "grpc", "grpc-health"}
            if container.defaults_to_frontend:
                known.add("http")
            for probe in PROBES:
                port = _probed(own_probe(pod, container, probe) or {})
                if isinstance(port, str) and not port.isdigit() and port not in known:
                    yield RuleResult(
                        location=Location(component.name, "field", ("main", probe))
                        if container.is_main
                        else Location("", "manifest", (*container.cursor.path, probe)),
                        message=f"{probe} uses the port {port}, which the container does not have",
                        fix=Fix(text="Use the number of the port."),
                    )


def _http_port(process: Process) -> tuple[int, Location] | None:
    """The port of a frontend and its place; None if it is unset or not a number."""
    found = process.text("--http-port", "DYN_HTTP_PORT")
    return (int(found[0]), found[1]) if found and found[0].isdigit() else None


def other_http_port(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for process in processes(deployment):
        found = _http_port(process)
        is_probed = process.container.defaults_to_frontend
        if process.launch.module != FRONTEND or not is_probed or found is None:
            continue
        port, location = found
        named = named_ports(process.container).get("http", 8000)
        probes = [own_probe(process.pod, process.container, name) for name in PROBES[1:]]
        if port == named or all(probe and _probed(probe) != "http" for probe in probes):
            continue
        yield RuleResult(
            location=location,
            message=f"the frontend listens on port {port}, but its probes and its Service use "
            f"port {named}",
            fix=Fix(text=f"Use port {named}, or set the port named http to {port}."),
        )
