"""Rules about the ports on which the processes of a pod listen: clashes, and probes of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import Process, processes
from penstock.checks.rules.pods.ports import FRONTEND, PORT_NAMES, PROBES, named_ports, own_probe
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.manifests.pods import Container
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS, Worker

TCP = re.compile(r"^tcp://[^:/]*(?:\[[^\]]*\])?:([0-9]+)$")
BOOTSTRAP = "disaggregation-bootstrap-port"
# Ports of a worker besides its engine's, by variable.
VARIABLES = ("DYN_SYSTEM_PORT", "DYN_KVBM_METRICS_PORT")
OPERATORS_PORT = {"DYN_SYSTEM_PORT": "9090"}
# What serves HTTP or gRPC besides the frontend's port.
OTHER_SERVERS = ("--kserve-grpc-server", "--grpc-metrics-port", "--kubernetes-healthcheck")


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A port that a process opens."""

    number: int
    what: str
    location: Location
    process: Process
    # Whether the file sets it; else it is a default.
    is_set: bool = True
    is_http: bool = False


def _kv_events(worker: Worker, process: Process) -> Iterator[Listener]:
    events = worker.get("kv-events-config")
    endpoint = events.get("endpoint") if isinstance(events, Mapping) else None
    found = TCP.match(endpoint) if isinstance(endpoint, str) else None
    if found is None or worker.engine not in (Engine.VLLM, Engine.SGLANG):
        return
    if isinstance(events, Mapping) and events.get("enable_kv_cache_events") is False:
        return
    listens = "*" in str(endpoint) or "0.0.0.0" in str(endpoint) or "[::]" in str(endpoint)
    if worker.engine is Engine.VLLM and not ("*" in str(endpoint) or "::" in str(endpoint)):
        listens = False  # vLLM connects to it
    if listens:
        location = worker.config_location("kv-events-config.endpoint")
        yield Listener(
            number=int(found[1]), what="the KV event port", location=location, process=process
        )


def _of_engine(worker: Worker, process: Process) -> Iterator[Listener]:
    """The fixed ports that an engine opens."""
    yield from _kv_events(worker, process)
    side = worker.env("VLLM_NIXL_SIDE_CHANNEL_PORT")
    if worker.engine is Engine.VLLM and side and side.isdigit() and _uses_nixl(worker):
        place = worker.location("env", "VLLM_NIXL_SIDE_CHANNEL_PORT")
        yield Listener(
            number=int(side), what="VLLM_NIXL_SIDE_CHANNEL_PORT", location=place, process=process
        )
    setting = worker.settings.get(BOOTSTRAP)
    if worker.engine is Engine.SGLANG and worker.role is Role.PREFILL and setting is not None:
        if str(setting.value).isdigit():
            yield Listener(
                number=int(setting.value),
                what=BOOTSTRAP,
                location=setting.location,
                process=process,
            )


def _uses_nixl(worker: Worker) -> bool:
    config = worker.get("kv-transfer-config")
    return isinstance(config, Mapping) and "nixl" in str(config).lower()


def _of_dynamo(process: Process) -> Iterator[Listener]:
    """The ports of Dynamo's frontend, or of its system server in other processes."""
    env, kind = process.launch.env, process.pod.sub_kind or process.pod.kind
    if process.launch.module == FRONTEND:
        found = process.text("--http-port", "DYN_HTTP_PORT")
        place = found[1] if found else process.location("field", "main")
        text = found[0] if found else "8000"
        if text.isdigit():
            yield Listener(
                number=int(text),
                what="the frontend's port",
                location=place,
                process=process,
                is_set=found is not None,
                is_http=True,
            )
    for name in VARIABLES:
        is_default = name == "DYN_SYSTEM_PORT" and PORT_NAMES.get(kind, ("",))[0] == "system"
        text = env.get(name) or ("9090" if is_default and process.container.is_main else "")
        if text.isdigit() and process.launch.module not in (None, FRONTEND):
            yield Listener(
                number=int(text),
                what=name,
                location=process.location("env", name),
                process=process,
                is_set=name in env,
                is_http=True,
            )


def _listeners(deployment: ServingDeployment) -> Mapping[str, list[Listener]]:
    """The listeners of each component's pod, of processes that surely run."""
    by_launch = {id(worker.launch): worker for worker in deployment.workers}
    found: dict[str, list[Listener]] = {component.name: [] for component in deployment.components}
    for process in processes(deployment):
        if process.launch.is_conditional:
            continue
        worker = by_launch.get(id(process.launch))
        found[process.component.name] += _of_dynamo(process)
        found[process.component.name] += _of_engine(worker, process) if worker else ()
    return found


def port_clash(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, listeners in _listeners(deployment).items():
        seen: dict[int, Listener] = {}
        for port in sorted(listeners, key=lambda one: one.is_set):  # defaults first
            first = seen.setdefault(port.number, port)
            if first is port or not port.is_set:
                continue
            if first.process is not port.process and first.what == port.what:
                if port.what not in VARIABLES:  # Dynamo only logs that it cannot listen
                    yield _clash(
                        port,
                        f"two processes of {name} open port {port.number} ({port.what})",
                        "the second process",
                    )
            elif first.what != port.what:
                yield _clash(
                    port,
                    f"{port.what} of {name} is {port.number}, the same as {first.what}",
                    "one of them",
                )


def _clash(port: Listener, message: str, which: str) -> RuleResult:
    fix = Fix(text=f"Give {which} another port than {port.number}.")
    return RuleResult(location=port.location, message=message, fix=fix)


def unserved_probe(deployment: ServingDeployment) -> Iterable[RuleResult]:
    listeners = _listeners(deployment)
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for container in pod.containers:
            if not _is_known(deployment, container):
                continue
            open_ports = [p for p in listeners[component.name] if p.process.container is container]
            for probe in PROBES:
                given = own_probe(pod, container, probe) or {}
                kind = next((k for k in ("httpGet", "tcpSocket", "grpc") if k in given), "")
                port = _number(container, as_mapping(given.get(kind)).get("port"))
                accepting = [p.number for p in open_ports if p.is_http or kind == "tcpSocket"]
                if port is None or not accepting or (port in accepting and kind != "grpc"):
                    continue
                served = " and ".join(map(str, dict.fromkeys(accepting)))
                yield RuleResult(
                    location=Location(component.name, "field", ("main", probe))
                    if container.is_main
                    else Location("", "manifest", (*container.cursor.path, probe)),
                    message=f"{probe} uses gRPC, but the process serves only HTTP"
                    if kind == "grpc"
                    else f"{probe} uses port {port}, but the process listens on {served}",
                    fix=Fix(text="Set DYN_SYSTEM_PORT to 9090.", env=OPERATORS_PORT)
                    if str(port) == OPERATORS_PORT["DYN_SYSTEM_PORT"]
                    and any(one.what in OPERATORS_PORT and one.is_set for one in open_ports)
                    else _with_port(container, probe, kind, accepting[0]),
                )


def _with_port(container: Container, probe: str, kind: str, port: int) -> Fix:
    if kind == "grpc":
        return Fix(text=f"Use httpGet with port {port}, or remove the probe.")
    path = f"main/{probe}/{kind}/port"
    fields = {path: port} if container.is_main and not container.cursor[probe].is_absent else {}
    return Fix(text=f"Set the port of {probe} to {port}.", fields=fields)


def _number(container: Container, port: Any) -> int | None:
    """The number of a probe's port; None if it is not known. PS728 reports unknown names."""
    named = named_ports(container).get(str(port), port)
    return int(named) if str(named).isdigit() else None


def _is_known(deployment: ServingDeployment, container: Container) -> bool:
    """Whether the container runs one frontend or workers, and all their ports are known."""
    found = [p for p in processes(deployment) if p.container is container]
    return bool(found) and all(_has_known_ports(process) for process in found)


def _has_known_ports(process: Process) -> bool:
    launch = process.launch
    hidden = launch.has_unread_variables or launch.is_conditional
    if hidden or any("PORT" in name for name in launch.unknown_variables):
        return False
    if launch.module == FRONTEND:
        return not any(word.partition("=")[0] in OTHER_SERVERS for word in launch.arguments)
    engine = process.component.engine
    is_worker = process.component.role in WORKERS and engine not in (None, Engine.LLAMACPP)
    return is_worker and engine is not None and launch.module == engine.module
