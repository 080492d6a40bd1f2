"""Free TCP ports on loopback; no port is handed out twice in a run."""

from __future__ import annotations

import errno
import itertools
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from penstock.errors import PortInUseError, StartError
from penstock.text.commands import command

# Dynamo 1.6 reads DYN_SYSTEM_PORT into an i16, so 32767 is the highest. The kernel takes ephemeral
# ports from 32768 up, so no outgoing connection takes a port between our check and the bind.
LOWEST, HIGHEST = 20000, 32767
LOOPBACK = "127.0.0.1"
# Strict: what parsers of URLs understand differently, such as a backslash, is no server.
_SERVER = re.compile(
    r"([a-z]+://)?([\w.~%-]+(:[\w.~%-]*)?@)?(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?/?",
    re.ASCII,
)


def parsed(url: str) -> SplitResult:
    """The parts of a URL, with or without a scheme. ValueError when it is none."""
    return urlsplit(url if "//" in url else f"//{url}")


def is_local(url: str) -> bool:
    """Whether the URL of a server, with or without a scheme, is on loopback. It has no comma: a
    client of NATS connects to each server of a list."""
    address = _SERVER.fullmatch(url)
    if address is None:
        return False
    try:
        return address["host"] == "localhost" or ip_address(address["host"].strip("[]")).is_loopback
    except ValueError:
        return False


class Ports:
    """Hands out ports that nothing listens on.

    Another program can still take a port before the child binds it; the child then exits with an
    error. Two penstocks start at different ports.
    """

    def __init__(self, host: str = LOOPBACK, first: int | None = None) -> None:
        self._host = host
        self._given: set[int] = set()
        span = HIGHEST - LOWEST + 1
        start = (os.getpid() * 97 if first is None else first - LOWEST) % span
        order = [LOWEST + (start + step) % span for step in range(span)]
        self._order = itertools.cycle(order)
        self._span = span

    def free(self) -> int:
        """The next free port; StartError when every port of the range is taken."""
        for port in itertools.islice(self._order, self._span):
            if port not in self._given and _why_taken(self._host, port) is None:
                self._given.add(port)
                return port
        raise StartError(f"no port between {LOWEST} and {HIGHEST} is free on {self._host}")

    def give_back(self, port: int) -> None:
        self._given.discard(port)


def _why_taken(host: str, port: int) -> OSError | None:
    """None when the port can be bound, else the error."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


@contextmanager
def reserved(host: str, port: int) -> Iterator[None]:
    """Keep ``host``:``port`` from other penstocks on this machine until the end of the block.

    A child binds the port seconds after it was found free, and two Envoys of one user can even bind
    the same. PortInUseError when it cannot be bound, or another penstock has reserved it.
    """
    # An abstract socket: binding it is atomic, its names are those of the network namespace, as
    # ports are, and the kernel releases it when penstock ends in any way.
    with socket.socket(socket.AF_UNIX) as reservation:
        try:
            reservation.bind(f"\0penstock {host}:{port}")
        except OSError as error:
            raise _refused(host, port, error) from None
        require_free(host, port)
        yield


def require_free(host: str, port: int) -> None:
    """PortInUseError when ``host``:``port`` cannot be bound."""
    if error := _why_taken(host, port):
        raise _refused(host, port, error)


def _refused(host: str, port: int, error: OSError) -> PortInUseError:
    if error.errno == errno.EADDRNOTAVAIL:
        place, fix = "--host", "Give an address of this machine."
    elif error.errno == errno.EACCES:
        place, fix = "--port", "Choose a port above 1023 with --port N."
    else:
        place, fix = "frontend.port", f"{_free(port)}, or choose another port with --port N."
    message = f"cannot listen on {host}:{port}: {error.strerror or error}"
    return PortInUseError(message, place=place, fix=fix)


def _free(port: int) -> str:
    """How to free the port: stop the graph that is up there, or another process."""
    from penstock.local.graphs import list_graphs

    urls = {graph.url: graph.source for graph in list_graphs() if graph.url}
    source = next((source for url, source in urls.items() if parsed(url).port == port), None)
    return f"Run {command('down', source)}" if source else "Stop the process that uses it"
