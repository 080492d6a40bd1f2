"""What `up` runs on this machine: programs, their replicas, and the substitutes among them.

`adapt` builds it from a Deployment; the supervisor keeps it running.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.graph.gateway import GatewaySection, Limits
from penstock.local.local_flags import MOCKER
from penstock.manifests.deployment import Engine, Role


@dataclass(frozen=True, kw_only=True)
class Infrastructure:
    """Dynamo's discovery backend, event plane and request plane on this machine."""

    discovery: str = "file"  # file | etcd
    events: str = "zmq"  # zmq | nats
    requests: str = "tcp"  # tcp | nats
    etcd_endpoints: tuple[str, ...] = ()
    """Empty: `up` starts an etcd if ``discovery`` needs one."""
    nats_url: str = ""
    """Empty: `up` starts a NATS server if a plane needs one."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One launch of a component as it runs on this machine.

    ``argv`` and ``env`` contain no port and no path of this run. The supervisor adds them at start,
    so the key of an unchanged program stays the same across restarts and edits.
    """

    name: str
    component: str
    role: Role
    replicas: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path in the container → text. Both are rewritten to the run's own folder."""
    grace_s: float
    """Seconds from SIGTERM to SIGKILL."""
    is_substitute: bool = False
    """The mocker runs instead of the graph's engine."""
    listens: int | None = None
    """Port of a service; it is ready when the port accepts connections. None: not a service."""
    greets: bool = False
    """The service sends the first bytes of a connection (ZMQ, NATS); others respond to HTTP."""
    hung_s: float = 10.0
    """Seconds without a response after which a process counts as hung. Registrations in Dynamo
    expire after 10 s without a heartbeat; until then, routers send requests to a hung worker."""
    gpus: int = 0
    """GPUs of one replica."""
    weights_bytes: int = 0
    """Size of the model's weight files, if it runs on GPUs; 0: unknown."""
    holds_sigterm: bool = False
    """SIGTERM is blocked in its processes: `up` sees that one is pending, and drains them."""
    ports: tuple[str, ...] = ()
    """NAMEs of `{port:NAME}` in ``argv`` and ``env``; each replica gets its own ports."""

    @property
    def is_mocker(self) -> bool:
        """Whether a mocker runs: as a substitute, or because the graph sets it as the engine."""
        return self.is_substitute or MOCKER in self.argv

    @property
    def service(self) -> bool:
        """Whether it is a local service (etcd, NATS, broker, endpoint), not a part of the graph."""
        return self.listens is not None

    @cached_property
    def key(self) -> str:
        """A running process with an equal key already has this configuration."""
        content = [self.argv, sorted(self.env.items()), sorted(self.files.items()), self.gpus]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Options of `up` that override the graph, and limits that it passes to the adapter."""

    engine: Engine | None = None  # --engine mocker
    port: int | None = None
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)  # of the graph, above the adapter's own


@dataclass(frozen=True, kw_only=True)
class LocalDeployment:
    """The programs of a graph in start order."""

    name: str
    namespace: str
    """Dynamo namespace of all programs."""
    programs: tuple[Program, ...]
    infrastructure: Infrastructure
    port: int
    notes: tuple[str, ...]
    """Lines for the operator: substitutes, and what is skipped on this machine."""
    is_traced: bool = False
    """Its components export traces on a cluster; `up` then records them on this machine."""
    gateway: GatewaySection = field(default_factory=GatewaySection)
    """The graph's section, with its defaults; of a manifest only the defaults."""

    @property
    def disaggregated(self) -> bool:
        roles = {p.role for p in self.programs if p.replicas}
        return Role.PREFILL in roles and Role.DECODE in roles

    def program(self, name: str) -> Program | None:
        return next((p for p in self.programs if p.name == name), None)
