"""Start and stop of pods, their probes, and the ports on which their processes listen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checks.rules.containers import Process, mappings, processes
from penstock.checks.rules.pods.pod_containers import containers_of
from penstock.engines.settings import Location
from penstock.manifests.deployment import WORKERS, Component, Engine, Role
from penstock.manifests.pods import Container, Pod
from penstock.serving.deployment import FRONTEND, ServingDeployment
from penstock.serving.worker import Worker
from penstock.text.values import as_mapping, positive_int

PREFILL_DRAIN_S = 30  # of a TensorRT-LLM prefill worker, not configurable
# How long the operator's probe waits for a worker that does not respond: 3 times 4 s, every 5 s,
# for runtimes since 1.5 (dynamo#13512). For older ones it is more strict than most: once 4 s.
OPERATOR_LIVENESS_S = 14
FINISH_VARIABLE = "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"
DRAIN_DEFAULTS = {FINISH_VARIABLE: 5, "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": 900}
# Time for requests to finish within a grace period of 240 s.
LONGER_FINISH = {"DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": "25", FINISH_VARIABLE: "180"}
LOADING_GIB_PER_S = 0.5  # a common, slow case: a cold read over the network
LONGEST_GRACE_S = 2 * 3600
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
KINDS = ("httpGet", "tcpSocket", "grpc")


def drain_s(worker: Worker) -> int:
    """Seconds that a stopping worker may take."""
    drain = sum(
        default if worker.env(name) is None else positive_int(worker.env(name)) or 0
        for name, default in DRAIN_DEFAULTS.items()
    )
    return drain + PREFILL_DRAIN_S * (worker.is_trtllm and worker.role is Role.PREFILL)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A probe of a container in the manifest."""

    name: str
    pod: Pod
    container: Container
    settings: Mapping[str, Any]

    @property
    def location(self) -> Location:
        if self.container.is_main:
            return Location(self.pod.name, "field", ("main", self.name))
        return Location("", "manifest", (*self.container.cursor.path, self.name))

    @property
    def kind(self) -> str:
        """`httpGet`, `tcpSocket` or `grpc`; empty for `exec`."""
        return next((k for k in KINDS if isinstance(self.settings.get(k), Mapping)), "")

    @property
    def port(self) -> Any:
        """The port by number or name."""
        return as_mapping(self.settings.get(self.kind)).get("port")

    @property
    def number(self) -> int | None:
        """The port's number; None if it is not known."""
        number = named_ports(self.container).get(str(self.port), self.port)
        return int(number) if str(number).isdigit() else None

    def _count(self, key: str, default: int) -> int:
        return positive_int(self.settings.get(key)) or default

    @property
    def period_s(self) -> int:
        return self._count("periodSeconds", 10)

    @property
    def allows_s(self) -> int:
        """Seconds until it has failed for a process that does not start."""
        failures = self._count("failureThreshold", 3)
        return self._count("initialDelaySeconds", 0) + self.period_s * failures

    @property
    def patience_s(self) -> int:
        """Seconds until it has failed for a process that does not respond any more. Probes do not
        overlap, and a timeout that exceeds the period delays the next one."""
        timeout = self._count("timeoutSeconds", 1)
        return (self._count("failureThreshold", 3) - 1) * max(self.period_s, timeout) + timeout


def probe_of(pod: Pod, container: Container, name: str) -> Probe | None:
    """A probe of a container; v1alpha1 also has those of the main container at the component."""
    is_elsewhere = container.cursor[name].is_absent and container.is_main
    settings = as_mapping((pod.cursor if is_elsewhere else container.cursor)[name].value)
    return Probe(name=name, pod=pod, container=container, settings=settings) if settings else None


def probes_of(deployment: ServingDeployment) -> Iterator[Probe]:
    """All probes in the manifest."""
    for container in containers_of(deployment):
        probes = (probe_of(container.pod, container.container, name) for name in PROBES)
        yield from (probe for probe in probes if probe is not None)


def named_ports(container: Container) -> dict[str, Any]:
    """The numbers of a container's ports by name."""
    ports = mappings(container.cursor["ports"].value)
    return {str(port["name"]): port.get("containerPort") for port in ports if port.get("name")}


TCP = re.compile(r"^tcp://[^:/]*(?:\[[^\]]*\])?:([0-9]+)$")
BOOTSTRAP = "disaggregation-bootstrap-port"
NIXL_PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"
# Variables that vLLM converts to a number at startup; with NIXL also `NIXL_PORT` (vllm/envs.py 0.10
# to 0.33).
NUMBER_VARIABLES = ("VLLM_PORT", "VLLM_DP_MASTER_PORT")
# Ports of a worker besides its engine's, by variable.
VARIABLES = ("DYN_SYSTEM_PORT", "DYN_KVBM_METRICS_PORT")
# The name that the operator's probes use, by the component's type (component_frontend.go,
# component_worker.go, component_planner.go), and its number.
SYSTEM_PORT = ("system", 9090)
OPERATOR_PORTS = {
    "frontend": ("http", 8000),
    **dict.fromkeys(("worker", "prefill", "decode"), SYSTEM_PORT),
}
# Those of the operator's main containers.
ADDED_PORTS = ("http", "system", "nixl", "metrics", "grpc", "grpc-health")
# What serves HTTP or gRPC besides the frontend's port.
OTHER_SERVERS = ("--kserve-grpc-server", "--grpc-metrics-port", "--kubernetes-healthcheck")


def operator_port(pod: Pod) -> tuple[str, int] | None:
    """The name and number of the port that the operator's probes use; None without probes."""
    return OPERATOR_PORTS.get(pod.sub_kind) or OPERATOR_PORTS.get(pod.kind)


def system_port(component: Component) -> str | None:
    """The port on which a worker serves its probes, if the container sets it."""
    ports = (launch.env.get("DYN_SYSTEM_PORT") for launch in component.launches)
    return next((port for port in ports if port and port.isdigit()), None)


def port_names(container: Container) -> set[str]:
    """The names of a container's ports, also of those that the operator adds."""
    has_added = container.is_main and container.cursor["ports"].is_absent
    names = {*named_ports(container), *(ADDED_PORTS if has_added else ())}
    return names | {"http"} if container.defaults_to_frontend else names


def probes_use(port: str, pod: Pod, container: Container) -> bool:
    """Whether a probe of the file, or one that the operator adds, uses the port of that name."""
    added = PROBES[1:] if port == "http" else PROBES  # a frontend gets no startup probe
    probes = [probe_of(pod, container, name) for name in added]
    return any(probe is None or probe.port == port for probe in probes)


@dataclass(frozen=True)
class Listener:
    """A port that a process opens."""

    number: int
    what: str
    location: Location
    # Whether the file sets it; else it is a default.
    is_set: bool
    is_http: bool
    process: Process


def _of_engine(worker: Worker) -> Iterator[tuple[str, str, Location]]:
    """(number, what, place) of the fixed ports that an engine opens."""
    if (port := _kv_event_port(worker)) is not None:
        yield port, "the KV event port", worker.config_location("kv-events-config.endpoint")
    transfer = worker.get("kv-transfer-config")
    uses_nixl = isinstance(transfer, Mapping) and "nixl" in str(transfer).lower()
    if worker.engine is Engine.VLLM and uses_nixl:
        yield worker.env(NIXL_PORT) or "", NIXL_PORT, worker.location("env", NIXL_PORT)
    bootstrap = worker.settings.get(BOOTSTRAP)
    if worker.engine is Engine.SGLANG and worker.role is Role.PREFILL and bootstrap is not None:
        yield str(bootstrap.value), BOOTSTRAP, bootstrap.location


def _kv_event_port(worker: Worker) -> str | None:
    """The port for KV events, unless the engine connects to it."""
    events = worker.get("kv-events-config")
    endpoint = str(events.get("endpoint")) if isinstance(events, Mapping) else ""
    port = TCP.match(endpoint)
    if port is None or events.get("enable_kv_cache_events") is False:
        return None
    listens = {Engine.VLLM: ("*", "[::]"), Engine.SGLANG: ("*", "[::]", "0.0.0.0")}
    signs = listens.get(worker.engine, ())
    return port[1] if any(sign in endpoint for sign in signs) else None


def _of_dynamo(process: Process) -> Iterator[tuple[str, str, Location, bool]]:
    """(number, what, place, whether the file sets it) of the ports of Dynamo's frontend, or of its
    system server in other processes."""
    env, module = process.launch.env, process.launch.module
    if module == FRONTEND:
        stated = process.text("--http-port", "DYN_HTTP_PORT")
        text, place = stated or ("8000", process.location("field", "main"))
        yield text, "the frontend's port", place, stated is not None
    elif module is not None:
        is_probed = operator_port(process.pod) == SYSTEM_PORT and process.container.is_main
        defaults = {"DYN_SYSTEM_PORT": "9090"} if is_probed else {}
        for name in VARIABLES:
            text = env.get(name) or defaults.get(name, "")
            yield text, name, process.location("env", name), name in env


def _listeners(deployment: ServingDeployment) -> dict[str, list[Listener]]:
    """The listeners of each component's pod, of processes that surely run."""
    by_launch = {id(worker.launch): worker for worker in deployment.workers}
    listeners: dict[str, list[Listener]] = {c.name: [] for c in deployment.components}
    for process in processes(deployment):
        worker = by_launch.get(id(process.launch))
        ports = [(*port, True) for port in _of_dynamo(process)]
        ports += [(*port, True, False) for port in (_of_engine(worker) if worker else ())]
        listeners[process.component.name] += [
            Listener(int(text), what, location, is_set, is_http, process)
            for text, what, location, is_set, is_http in ports
            if text.isdigit() and not process.launch.is_conditional
        ]
    return listeners


def clashes(deployment: ServingDeployment) -> Iterator[tuple[Listener, Listener]]:
    """Two listeners of a pod with the same port, the second of which the file sets."""
    for listeners in _listeners(deployment).values():
        first_of: dict[int, Listener] = {}
        for second in sorted(listeners, key=lambda listener: listener.is_set):  # defaults first
            first = first_of.setdefault(second.number, second)
            # Dynamo only logs that it cannot listen on one of `VARIABLES`.
            is_fatal = first.process is not second.process and first.what not in VARIABLES
            if second.is_set and (first.what != second.what or is_fatal):
                yield first, second


def served_probes(deployment: ServingDeployment) -> Iterator[tuple[Probe, list[Listener]]]:
    """Each probe of a container whose ports are known, with the listeners that it can use."""
    known: dict[int, bool] = {}
    for process in processes(deployment):
        container = id(process.container)
        known[container] = known.get(container, True) and _has_known_ports(process)
    listeners = _listeners(deployment)
    for probe in probes_of(deployment):
        if known.get(id(probe.container)):
            yield (
                probe,
                [
                    listener
                    for listener in listeners[probe.pod.name]
                    if listener.process.container is probe.container
                    and (listener.is_http or probe.kind == "tcpSocket")
                ],
            )


def _has_known_ports(process: Process) -> bool:
    """Whether it is one frontend or worker, and all its ports are known."""
    launch, engine = process.launch, process.component.engine
    hidden = launch.has_unread_variables or launch.is_conditional
    if hidden or any("PORT" in name for name in launch.unknown_variables):
        return False
    if launch.module == FRONTEND:
        return not any(word.partition("=")[0] in OTHER_SERVERS for word in launch.arguments)
    if process.component.role not in WORKERS or engine is None or engine is Engine.LLAMACPP:
        return False
    return launch.module == engine.module
