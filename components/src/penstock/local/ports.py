"""Free TCP ports on loopback, never the same one twice in a run."""

from __future__ import annotations

import socket

from penstock.errors import PortInUseError, Problem


class Ports:
    """Hands out ports that nothing listens on at that moment.

    Between the answer and the child's bind another program can take one; the child then ends with
    an error and is started again with another port.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._given: set[int] = set()

    def free(self) -> int:
        while True:
            with socket.socket() as probe:
                probe.bind((self._host, 0))
                port = int(probe.getsockname()[1])
            if port not in self._given:
                self._given.add(port)
                return port

    def give_back(self, port: int) -> None:
        self._given.discard(port)


def require_free(host: str, port: int, asked_by: str) -> None:
    """Raise PortInUseError when something listens on ``host``:``port`` already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortInUseError(
                Problem(
                    place=asked_by,
                    message=f"cannot listen on {host}:{port}: {error.strerror or error}",
                    fix="end what holds it, or choose another with --port N",
                )
            ) from None
