"""Start and stop of pods: their probes, and how long a stopping worker drains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checks.rules.containers import mappings
from penstock.checks.rules.pods.pod_containers import containers_of
from penstock.engines.settings import Location
from penstock.manifests.deployment import Role
from penstock.manifests.pods import Container, Pod
from penstock.serving.deployment import ServingDeployment
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
