"""Starts one replica: its ports, its files, its command line, its log."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.local.envoy import Envoy
from penstock.local.launch import LOOPBACK, Wiring, arguments, environment, write_files
from penstock.local.plan import Program
from penstock.local.ports import Ports
from penstock.local.process import Child, child_environment
from penstock.local.replica import Replica, replica_name
from penstock.manifests.deployment import Role


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the OpenAI API is offered. ``envoy`` None: the first frontend is the endpoint."""

    host: str
    port: int
    envoy: Envoy | None = None

    @property
    def url(self) -> str:
        return _url(self.host, self.port)

    @property
    def frontend_host(self) -> str:
        """Behind Envoy a frontend has no reason to be seen from outside."""
        return LOOPBACK if self.envoy is not None else self.host

    def frontend_url(self, replica: Replica) -> str:
        return _url(self.frontend_host, replica.port or 0)


def _url(host: str, port: int) -> str:
    """How this machine reaches a listener on ``host``; "every address" is reached on loopback."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        return f"http://{LOOPBACK}:{port}"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"


class Starter:
    """``wiring`` is the same for every replica of a run, ``clock`` gives seconds."""

    def __init__(
        self, wiring: Wiring, endpoint: Endpoint, ports: Ports, clock: Callable[[], float]
    ) -> None:
        self._wiring, self._endpoint, self._ports, self._clock = wiring, endpoint, ports, clock
        self._files: dict[tuple[str, str], dict[str, Path]] = {}

    def start(self, program: Program, index: int) -> Replica:
        frontend = program.role is Role.FRONTEND
        port = self._frontend_port(index) if frontend else program.listens
        system_port = None if frontend or program.service else self._ports.free()
        files = self._files_of(program)
        child = Child(
            arguments(program, files, host=self._endpoint.frontend_host, port=port),
            child_environment(environment(program, files, self._wiring, system_port)),
            self._wiring.state.log(replica_name(program, index)),
            Path.cwd(),
        )
        return Replica(
            program=program,
            index=index,
            child=child,
            port=port,
            system_port=system_port,
            started=self._clock(),
        )

    def give_back(self, replica: Replica) -> None:
        """The replica ended: its ports may go to others."""
        for port in (replica.port, replica.system_port):
            self._ports.give_back(port or 0)

    def _files_of(self, program: Program) -> dict[str, Path]:
        """The program's files here, written with its first replica."""
        key = (program.name, program.key)
        if key not in self._files:
            self._files[key] = dict(write_files(self._wiring.state, program))
        return self._files[key]

    def _frontend_port(self, index: int) -> int:
        if self._endpoint.envoy is None and index == 0:
            return self._endpoint.port
        return self._ports.free()
