"""Fake frontends that record requests, and a listener that never reads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler

from tests.support.scripted_http import QuietServer
from tests.support.waiting import LIMIT_S


class Frontend(QuietServer):
    """Responds with its name, if ``responds``; ``seen`` has the headers of each request."""

    daemon_threads = True

    def __init__(self, name: str, status: int = 200, *, responds: bool = True) -> None:
        self.seen: list[dict[str, str]] = []
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._taken: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), self._handler(name.encode(), status, responds))

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> Frontend:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def get_request(self) -> tuple[socket.socket, object]:
        taken, address = super().get_request()
        self._taken.append(taken)
        return taken, address

    def __exit__(self, *_: object) -> None:
        """Close every connection, as a killed process does."""
        self._ended.set()
        self.shutdown()
        self.server_close()
        for taken in self._taken:
            with suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)

    def see(self, headers: dict[str, str]) -> None:
        with self._changed:
            self.seen.append(headers)
            self._changed.notify_all()

    def wait_for_requests(self, count: int) -> None:
        """Copies arrive after the response."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, LIMIT_S)

    def _handler(self, content: bytes, status: int, responds: bool) -> type[BaseHTTPRequestHandler]:
        frontend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # header and body in one write: two would wait for each other's ACK

            def do_POST(self) -> None:
                left = int(self.headers.get("content-length") or 0)
                while left:
                    left -= len(self.rfile.read(min(left, 65536)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                frontend.see({"path": self.path} | headers)
                if not responds:
                    frontend._ended.wait()
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
