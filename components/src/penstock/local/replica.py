"""One replica of a program: its child process and what the supervisor knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.local.deployment import Program
from penstock.local.process import Child
from penstock.local.reconcile import (
    BACKOFF_MOST_S,
    BACKOFF_SERVICE_S,
    STABLE_S,
    ObservedReplica,
    ReplicaState,
    backoff_s,
)
from penstock.local.state_file import ReplicaStatus
from penstock.manifests.deployment import Role


@dataclass
class Health:
    """When a ready replica was last seen to serve. Seconds on the supervisor's clock."""

    responded: float
    """The last response of its HTTP server, or of a service's own protocol."""
    found_at: float
    """A worker was last registered in discovery; a frontend last saw what is registered there."""
    watched: Mapping[str, int]
    """The discovery folders that it has watched since it became ready, see `Discovery`."""
    responds: bool = True
    """In the last check."""
    cpu_s: float = 0.0
    """CPU time of its process at the last check."""
    is_busy: bool = False
    """It computed instead of responding to the last check."""
    is_found: bool = True
    """In the last check."""


@dataclass
class Replica:
    """A running replica. Times are seconds on the supervisor's monotonic clock."""

    program: Program
    index: int
    child: Child
    port: int | None
    """HTTP port of a frontend, or the port of a service."""
    system_port: int | None
    """Metrics port of a worker."""
    started: float
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports that its command line names, by NAME of `{port:NAME}`."""
    gpus: tuple[int, ...] = ()
    """Indices of the GPUs that are assigned to it."""
    state: ReplicaState = ReplicaState.STARTING
    health: Health | None = None
    """None before it is ready, and once it drains."""
    worker_id: int | None = None
    crashes: int = 0
    restarts: int = 0
    retry_at: float = 0.0

    @property
    def name(self) -> str:
        return replica_name(self.program, self.index)

    @property
    def probe_port(self) -> int:
        """Port of a service that only this process listens on."""
        return next(iter(self.ports.values()), self.port or 0)

    @property
    def serves(self) -> bool:
        return self.program.role is not Role.FRONTEND and not self.program.service

    def observed(self) -> ObservedReplica:
        return ObservedReplica(
            program=self.program.name,
            index=self.index,
            key=self.program.key,
            state=self.state,
            retry_at=self.retry_at,
        )

    def matches(self, program: str, index: int, key: str) -> bool:
        """Whether an action of `reconcile` means this replica. Draining replicas never match."""
        identity = (self.program.name, self.index, self.program.key)
        return identity == (program, index, key) and self.state is not ReplicaState.DRAINING

    def crashed(self, now: float) -> None:
        """Record a crash and schedule the restart; a stable run resets the count of crashes."""
        self.crashes = 1 if now - self.started > STABLE_S else self.crashes + 1
        most_s = BACKOFF_SERVICE_S if self.program.service else BACKOFF_MOST_S
        has_served = self.health is not None
        self.retry_at = now + backoff_s(self.crashes, has_served=has_served, most_s=most_s)
        self.state, self.health = ReplicaState.CRASHED, None

    def drains(self) -> None:
        self.state, self.health = ReplicaState.DRAINING, None

    def status(self) -> ReplicaStatus:
        """The replica's row in the state file."""
        return ReplicaStatus(
            name=self.name,
            program=self.program.name,
            role=self.program.role,
            state=self.status_state(),
            pid=self.child.pid,
            port=self.port,
            system_port=self.system_port,
            worker_id=f"{self.worker_id:x}" if self.worker_id is not None else None,
            restarts=self.restarts,
            exit_code=self.child.exit_code(),
            log=str(self.child.log),
            is_substitute=self.program.is_substitute,
            is_mocker=self.program.is_mocker,
            gpus=self.gpus,
        )

    def status_state(self) -> ReplicaState:
        """A process is not reported as ready when its last check failed."""
        is_well = self.health is None or (self.health.responds and self.health.is_found)
        if self.state is ReplicaState.READY and not is_well:
            return ReplicaState.UNHEALTHY
        return self.state


def replica_name(program: Program, index: int) -> str:
    """`decode.0`; a service that has one process has no number."""
    is_single = program.service and program.replicas == 1
    return program.name if is_single else f"{program.name}.{index}"
