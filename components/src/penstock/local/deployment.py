"""What `up` will run on this machine: programs, their replicas, and what is stood in for.

`interpret` makes it from a Deployment; `reconcile` and the supervisor work on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.manifests.deployment import Role


@dataclass(frozen=True, kw_only=True)
class Infrastructure:
    """How this graph's processes find and hear each other here.

    ``etcd_endpoints`` and ``nats_url`` empty: `up` starts a server of its own.
    """

    discovery: str = "file"  # file | etcd
    events: str = "zmq"  # zmq | nats
    requests: str = "tcp"  # tcp | nats
    etcd_endpoints: tuple[str, ...] = ()
    nats_url: str = ""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One launch of a component as it runs here; ``replicas`` processes of it.

    ``argv`` and ``env`` hold no port and no path of this run: the supervisor adds those at start,
    so that the key of an unchanged program stays the same over restarts and edits.
    ``files``: absolute path in the container → text; both are rewritten to the run's own folder.
    """

    name: str
    component: str
    role: Role
    replicas: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    grace_s: float
    is_substitute: bool = False
    listens: int | None = None  # services only: the port whose answer means ready
    ports: tuple[str, ...] = ()  # NAMEs of `{port:NAME}` in argv and env, one each a replica

    @property
    def service(self) -> bool:
        """Whether it is part of this machine's stand-in for a cluster, not of the graph."""
        return self.listens is not None

    @cached_property
    def key(self) -> str:
        """Equal keys mean: the running process is the one that is wanted."""
        content = [self.argv, sorted(self.env.items()), sorted(self.files.items())]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class LocalDeployment:
    """Programs in start order, the models that must answer, and what is said aloud."""

    name: str
    namespace: str  # Dynamo namespace of all programs
    programs: tuple[Program, ...]
    infrastructure: Infrastructure
    port: int
    notes: tuple[str, ...]

    @property
    def disaggregated(self) -> bool:
        roles = {p.role for p in self.programs if p.replicas}
        return Role.PREFILL in roles and Role.DECODE in roles

    def program(self, name: str) -> Program | None:
        return next((p for p in self.programs if p.name == name), None)
