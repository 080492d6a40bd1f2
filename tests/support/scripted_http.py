"""An HTTP server whose handler the test writes; it runs in threads of the test."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"
PACE_S = 0.01  # between two parts of a response that never ends
Handle = Callable[[BaseHTTPRequestHandler], None]


class QuietServer(ThreadingHTTPServer):
    request_queue_size = 128  # with 5, a client that is not accepted at once tries again after 1 s

    def serve_forever(self, poll_interval: float = 0.02) -> None:
        """`shutdown` takes as long as ``poll_interval``."""
        super().serve_forever(poll_interval)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Without Nagle's algorithm, by which a body can wait 40 ms for the ACK of its headers."""
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Not for a client that is gone, or that does not trust the certificate: the output could
        be that of a later test."""
        if not isinstance(sys.exception(), ssl.SSLError | ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(handle: Handle) -> Iterator[str]:
    """The server's URL. ``handle`` answers every request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            handle(self)

        do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = QuietServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def body_of(request: BaseHTTPRequestHandler) -> bytes:
    return request.rfile.read(int(request.headers.get("Content-Length") or 0))


def respond(
    request: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str
) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def begin_chunked(request: BaseHTTPRequestHandler, **headers: str) -> None:
    """The status and headers of a chunked response."""
    request.send_response(200)
    for name, value in {**headers, "Transfer_Encoding": "chunked"}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()


def send_always(request: BaseHTTPRequestHandler, part: bytes) -> None:
    """A chunked response that repeats ``part`` until the client closes the connection."""
    begin_chunked(request)
    request.close_connection = True
    with contextlib.suppress(OSError):
        while not select.select([request.connection], [], [], PACE_S)[0]:
            send_part(request, part)


def send_part(request: BaseHTTPRequestHandler, part: bytes) -> None:
    """One chunk of a chunked response."""
    request.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
    request.wfile.flush()
