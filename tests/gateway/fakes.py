"""Fake frontends that record requests, and a listener that never reads."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

from tests.support.scripted_http import QuietServer


class Frontend(QuietServer):
    """Responds with its name after ``wait_s``; ``seen`` has the headers of each request."""

    daemon_threads = True

    def __init__(self, name: str, status: int = 200, wait_s: float = 0.0) -> None:
        self.seen: list[dict[str, str]] = []
        self._taken: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), _handler(self.seen, name.encode(), status, wait_s))

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> Frontend:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def get_request(self) -> tuple[socket.socket, object]:
        taken, address = super().get_request()
        self._taken.append(taken)
        return taken, address

    def __exit__(self, *_: object) -> None:
        """Close every connection, as a killed process does."""
        self.shutdown()
        self.server_close()
        for taken in self._taken:
            with suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)


def _handler(
    seen: list[dict[str, str]], content: bytes, status: int, wait_s: float
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # header and body in one write: two would wait for each other's ACK

        def do_POST(self) -> None:
            left = int(self.headers.get("content-length") or 0)
            while left:
                left -= len(self.rfile.read(min(left, 65536)))
            seen.append({"path": self.path} | {k.lower(): v for k, v in self.headers.items()})
            time.sleep(wait_s)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def never_reads() -> Iterator[int]:
    """The port of a listener that accepts connections and never reads from them."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield listener.getsockname()[1]
