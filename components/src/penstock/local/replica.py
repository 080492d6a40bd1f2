"""One replica of a program: its child process and what the supervisor knows of it, and the errors
of one that did not start, with its last log lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import Problem, StartError
from penstock.local.deployment import Program
from penstock.local.process import Child, last_lines
from penstock.local.reconcile import (
    BACKOFF_MOST_S,
    BACKOFF_SERVICE_S,
    STABLE_S,
    Action,
    ObservedReplica,
    ReplicaState,
    backoff_s,
)
from penstock.local.state_file import ReplicaStatus
from penstock.manifests.deployment import Role

# Rust prints the reason of a panic far above the Python traceback that ends the log.
_CAUSE = re.compile(r"panicked at|Caused by|^\w*(Error|Exception): |Model materialization failed")
# The frontend cannot serve a model, and retries; the reason is at the end of a long line.
_NOT_SERVED = re.compile(r'(Model materialization failed).*\berror="(.*)"$')
_ACCESS = "http response sent status=200"  # of the readiness probes, several per second
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
LOOK_BACK = 2000
WIDTH = 240


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
    stopped_at: float | None = None
    """When it was first seen stopped by a signal; None while it is not."""
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

    def matches(self, action: Action) -> bool:
        """Whether an action of `reconcile` means this replica. Draining replicas never match."""
        identity = (self.program.name, self.index, self.program.key)
        is_meant = identity == (action.program, action.index, action.key)
        return is_meant and self.state is not ReplicaState.DRAINING

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
        """A process is not reported as ready when its last check failed, or while it is stopped."""
        health = self.health
        is_well = health is None or (
            health.responds and health.is_found and health.stopped_at is None
        )
        if self.state is ReplicaState.READY and not is_well:
            return ReplicaState.UNHEALTHY
        return self.state


def replica_name(program: Program, index: int) -> str:
    """`decode.0`; a service that has one process has no number."""
    is_single = program.service and program.replicas == 1
    return program.name if is_single else f"{program.name}.{index}"


def exited_during_startup(replica: Replica) -> StartError:
    code = replica.child.exit_code()
    reason = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return StartError(_problem(replica, f"exited during startup ({reason})", last=12))


def not_ready_in_time(replicas: Iterable[Replica], timeout_s: float) -> StartError:
    """Names at most four processes: more do not fit a screen, and wait for the same thing."""
    waiting = [r for r in replicas if r.state is not ReplicaState.READY]
    message = f"is not ready after {timeout_s:.0f} s, the limit of --start-timeout-s"
    problems = [
        _problem(r, f"{message} (pid {r.child.pid} is running)", last=5) for r in waiting[:4]
    ]
    more = [f"{len(waiting) - 4} more processes are not ready"] if len(waiting) > 4 else []
    return StartError(*problems, *more)


def _problem(replica: Replica, message: str, last: int) -> Problem:
    tail = "".join(f"\n    {line}" for line in relevant_lines(replica.child.log, last))
    return Problem(
        place=replica.name,
        message=f"{message}. Last log lines:{tail}\n  Log: {replica.child.log}",
    )


def relevant_lines(log: Path, last: int) -> list[str]:
    """The ``last`` lines of the log, preceded by up to four earlier lines that name a cause."""
    plain = [_COLOR.sub("", line) for line in last_lines(log, LOOK_BACK) if _ACCESS not in line]
    lines = [_NOT_SERVED.sub(r"\1: \2", line)[:WIDTH] for line in plain]
    above, tail = lines[:-last], lines[-last:]
    causes: list[str] = []
    for index, line in enumerate(above):
        if _CAUSE.search(line):
            causes += above[index : index + 2]  # a panic names the place, the next line the reason
    unique = list(dict.fromkeys(causes))[-4:]
    return [*unique, *(["…"] if unique else []), *tail]
