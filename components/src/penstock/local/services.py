"""Local services that a cluster would provide: event broker, etcd, NATS, the endpoint.

Each is a Program with a port, started before the graph (the endpoint: together with it).
"""

from __future__ import annotations

import shutil
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.environments import is_installed
from penstock.errors import MissingToolError, Problem, StartError
from penstock.local.deployment import Infrastructure, Program
from penstock.local.ports import LOOPBACK, Ports, parsed
from penstock.local.state import StateDir
from penstock.manifests.deployment import Role

STOP_S = 10.0
# Processes exit if etcd is unreachable for longer than their leases (`launch.LEASE_S`). A restart
# of an etcd that was only slow failed no request in the drills.
ETCD_HUNG_S = 4.0


@dataclass(frozen=True, kw_only=True)
class Services:
    """The services of one run."""

    programs: tuple[Program, ...]
    infrastructure: Infrastructure
    """With every address filled in."""
    broker_url: str = ""
    """Empty with NATS."""
    traces_url: str = ""
    """Of the receiver of traces; empty if the graph is not traced."""


def plan_services(infrastructure: Infrastructure, state: StateDir, ports: Ports) -> Services:
    """The servers that the graph needs and for which it names no address.

    MissingToolError when etcd or nats-server is needed and not on PATH.
    """
    programs: list[Program] = []
    broker_url = ""
    if infrastructure.events == "zmq":
        broker, broker_url = _broker(ports)
        programs.append(broker)
    if infrastructure.discovery == "etcd" and not infrastructure.etcd_endpoints:
        etcd, url = _etcd(state, ports)
        programs.append(etcd)
        infrastructure = replace(infrastructure, etcd_endpoints=(url,))
    if "nats" in (infrastructure.events, infrastructure.requests) and not infrastructure.nats_url:
        nats, url = _nats(state, ports)
        programs.append(nats)
        infrastructure = replace(infrastructure, nats_url=url)
    return Services(programs=tuple(programs), infrastructure=infrastructure, broker_url=broker_url)


def service(name: str, argv: list[str], listens: int, *, greets: bool = False) -> Program:
    """One process that listens on a port of its own."""
    return Program(
        name=name,
        component=name,
        role=Role.OTHER,
        replicas=1,
        argv=tuple(argv),
        env={},
        grace_s=STOP_S,
        listens=listens,
        greets=greets,
    )


def _broker(ports: Ports) -> tuple[Program, str]:
    """The event broker, and the ZMQ addresses that the components get."""
    xsub, xpub = ports.free(), ports.free()
    argv = [sys.executable, "-m", "penstock.local.broker", str(xsub), str(xpub)]
    url = f"xsub=tcp://{LOOPBACK}:{xsub} , xpub=tcp://{LOOPBACK}:{xpub}"
    return service("event-broker", argv, xpub, greets=True), url


def _etcd(state: StateDir, ports: Ports) -> tuple[Program, str]:
    client, peer = ports.free(), ports.free()
    url, peer_url = f"http://{LOOPBACK}:{client}", f"http://{LOOPBACK}:{peer}"
    argv = [
        _on_path("etcd", "etcd-server", "infrastructure.etcd_endpoints"),
        *("--name", "penstock", "--data-dir", str(state.scratch / "etcd")),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        *("--initial-cluster", f"penstock={peer_url}", "--logger", "zap"),
    ]
    return replace(service("etcd", argv, client), hung_s=ETCD_HUNG_S), url


def _nats(state: StateDir, ports: Ports) -> tuple[Program, str]:
    port = ports.free()
    argv = [
        _on_path("nats-server", "nats-server", "infrastructure.nats_url"),
        *("-a", LOOPBACK, "-p", str(port), "-js", "-sd", str(state.scratch / "nats")),
    ]
    return service("nats", argv, port, greets=True), f"nats://{LOOPBACK}:{port}"


def _on_path(program: str, package: str, setting: str) -> str:
    # Debian installs servers in sbin, which is not on an ordinary user's PATH.
    executable = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if executable is None:
        raise MissingToolError(
            f"the graph needs {program}, which is not on PATH",
            place=setting,
            fix=f"Install it (Debian: apt install {package}), or name a server in {setting}.",
        )
    return executable


def require_reachable(infrastructure: Infrastructure) -> None:
    """StartError for each server that the graph names and that accepts no connection."""
    named = [(url, "infrastructure.etcd_endpoints") for url in infrastructure.etcd_endpoints]
    named += [(url, "infrastructure.nats_url") for url in infrastructure.nats_url.split(",")]
    problems = [
        Problem(
            place=place,
            message=f"{url} does not respond",
            fix="Start the server, or correct the URL.",
        )
        for url, place in named
        if url and not _accepts_connections(url)
    ]
    if problems:
        raise StartError(*problems)


def _accepts_connections(url: str) -> bool:
    try:
        parts = parsed(url)
        address = (parts.hostname or "", parts.port or 4222)
        socket.create_connection(address, timeout=3).close()
    except (OSError, ValueError):
        return False
    return True


def envoy_binary(environments: Path) -> Path | None:
    """Envoy's binary; None when the `envoy` environment is not installed."""
    folder = environments / "envoy"
    binary = folder / "bin" / "envoy"
    return binary if is_installed(folder) else None
