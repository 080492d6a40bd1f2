"""An OTLP receiver on loopback: stores the traces and request records that Dynamo exports, and
what the request adapter measures.

`penstock up --trace` runs it in its own process, in threads: one for each process of the graph.
"""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from penstock.tracing.store import Kind, Message, Writer

SCHEMA = b"dynamo.request.trace.v1"  # of a request record, in the OTLP log that contains it
TRACES = "/v1/traces"
MOCKER_TRACES = "/mocker/v1/traces"
PATHS = {
    TRACES: Kind.TRACES,
    MOCKER_TRACES: Kind.MOCKER_TRACES,
    "/v1/logs": Kind.LOGS,
    "/penstock/client-reads": Kind.CLIENT_READS,  # `PATH` of local/request_adapter/client_reads.py
}
MOST_BYTES = 64 * 2**20  # of one message; Dynamo sends at most 512 spans at once


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing for a process that ended during an export."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Receiver:
    """Listens from `__init__` on a free port of ``host`` until `stop`."""

    def __init__(self, folder: Path, host: str) -> None:
        handler = type("Handler", (_Handler,), {"writer": Writer(folder)})
        self._server = _Server((host, 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the exporters keep their connections
    writer: Writer

    def do_POST(self) -> None:
        """Store one export; also log exports without a request record are acknowledged."""
        kind = PATHS.get(self.path)
        length = self.headers.get("content-length", "")
        if kind is None or not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True  # the body is not read
            self._respond(404 if kind is None else 413)
            return
        body = self.rfile.read(int(length))
        if kind is not Kind.LOGS or SCHEMA in body:
            try:
                self.writer.append(Message(kind=kind, body=body))
            except OSError:  # a full disk: the exporter drops the batch, the graph serves
                self._respond(507)
                return
        self._respond(200)

    def _respond(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Nothing: an export is not an event for the operator."""
