"""Start one replica: allocate its ports, write its files, launch the process."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.local.deployment import Program
from penstock.local.envoy import Envoy
from penstock.local.gpus.pool import GpuPool
from penstock.local.launch import RunContext, arguments, environment, write_files
from penstock.local.ports import LOOPBACK, Ports
from penstock.local.process import Child, child_environment
from penstock.local.replica import Replica, replica_name
from penstock.manifests.deployment import Role


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the OpenAI API listens."""

    host: str
    port: int
    frontend: str
    """Program whose first replica is the endpoint when there is no Envoy."""
    envoy: Envoy | None = None

    @property
    def url(self) -> str:
        return _url(self.host, self.port)

    @property
    def frontend_host(self) -> str:
        """Loopback behind Envoy, else the host of the endpoint."""
        return LOOPBACK if self.envoy is not None else self.host

    def frontend_url(self, replica: Replica) -> str:
        return _url(self.frontend_host, replica.port or 0)


def _reachable(host: str) -> str:
    """The address to connect to for a listener on ``host``; loopback for the unspecified one."""
    address = ipaddress.ip_address(host)
    if not address.is_unspecified:
        return host
    return LOOPBACK if address.version == 4 else "::1"


def _url(host: str, port: int) -> str:
    host = _reachable(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def accepts(host: str, port: int) -> bool:
    """Whether ``host``:``port`` accepts a connection."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


class Starter:
    """Starts the replicas of one run; ``clock`` returns seconds."""

    def __init__(
        self,
        context: RunContext,
        endpoint: Endpoint,
        ports: Ports,
        gpus: GpuPool,
        clock: Callable[[], float],
    ) -> None:
        self._context, self._endpoint, self._ports, self._clock = context, endpoint, ports, clock
        self._gpus = gpus
        self._files: dict[tuple[str, str], dict[str, Path]] = {}

    def start(self, program: Program, index: int, before: Replica | None = None) -> Replica | None:
        """The started replica; None while its GPUs are in use by replicas that are stopping.

        ``before``: the crashed one that it replaces, on the same GPUs.
        """
        gpus = self._gpus.take(program.gpus, before.gpus if before else ())
        if gpus is None:
            return None
        try:
            replica = self._start(program, index, gpus)
        except (OSError, PenstockError):
            if before is None:
                self._gpus.give_back(gpus)
            raise
        if before is not None:
            self._give_back_ports(before)
        return replica

    def _start(self, program: Program, index: int, gpus: tuple[int, ...]) -> Replica:
        frontend = program.role is Role.FRONTEND
        port = self._frontend_port(program, index) if frontend else program.listens
        system_port = None if frontend or program.service else self._ports.free()
        self._context.state.scratch.mkdir(parents=True, exist_ok=True)
        files = self._files_of(program)
        ports = {name: self._ports.free() for name in program.ports}
        child = Child(
            arguments(program, files, ports, host=self._endpoint.frontend_host, port=port),
            child_environment(environment(program, files, ports, self._context, system_port, gpus)),
            self._context.state.log(replica_name(program, index)),
            # Not the current folder: `python -m` would import from it first.
            self._context.state.scratch,
            holds_sigterm=program.holds_sigterm,
        )
        return Replica(
            program=program,
            index=index,
            child=child,
            port=port,
            system_port=system_port,
            started=self._clock(),
            ports=ports,
            gpus=gpus,
        )

    def give_back(self, replica: Replica) -> None:
        """Release the ports and GPUs of a replica that has ended; a service keeps its port for the
        run."""
        self._gpus.give_back(replica.gpus)
        self._give_back_ports(replica)

    def _give_back_ports(self, replica: Replica) -> None:
        http_port = None if replica.program.service else replica.port
        for port in (http_port, replica.system_port, *replica.ports.values()):
            self._ports.give_back(port or 0)

    def _files_of(self, program: Program) -> dict[str, Path]:
        """The program's local files, written with its first replica."""
        key = (program.name, program.key)
        if key not in self._files:
            self._files[key] = dict(write_files(self._context.state, program))
        return self._files[key]

    def _frontend_port(self, program: Program, index: int) -> int:
        """The endpoint's port for its one replica; a free port for every other frontend."""
        first = program.name == self._endpoint.frontend and index == 0
        if self._endpoint.envoy is None and first:
            return self._endpoint.port
        return self._ports.free()
