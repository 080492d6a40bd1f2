"""The server's side of a websocket (RFC 6455), for exec and port-forward of the emulated API."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BINARY, CLOSE = 2, 8
ERROR_CHANNEL = 3  # of exec: its Status
CHUNK = 65536


def is_upgrade(handler: BaseHTTPRequestHandler) -> bool:
    return (handler.headers.get("Upgrade") or "").lower() == "websocket"


class WebSocket:
    """A connection after its handshake."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        key = handler.headers["Sec-WebSocket-Key"] + MAGIC
        protocol = handler.headers.get("Sec-WebSocket-Protocol", "").partition(",")[0]
        handler.send_response(101)
        handler.send_header("Upgrade", "websocket")
        handler.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        handler.send_header("Sec-WebSocket-Accept", accept)
        if protocol:
            handler.send_header("Sec-WebSocket-Protocol", protocol)
        handler.end_headers()
        handler.wfile.flush()
        handler.close_connection = True

    def send(self, channel: int, content: bytes) -> None:
        self._frame(BINARY, bytes([channel]) + content)

    def close(self) -> None:
        self._frame(CLOSE, struct.pack("!H", 1000))

    def receive(self) -> bytes | None:
        """The next message, which begins with its channel; None at the end."""
        while True:
            start = self._handler.rfile.read(2)
            if len(start) < 2:
                return None
            size = start[1] & 127
            if size >= 126:
                kind = "!H" if size == 126 else "!Q"
                (size,) = struct.unpack(kind, self._handler.rfile.read(struct.calcsize(kind)))
            mask = self._handler.rfile.read(4)
            content = self._handler.rfile.read(size)
            if start[0] & 15 == CLOSE:
                return None
            if start[0] & 15 <= BINARY:
                return bytes(b ^ mask[i % 4] for i, b in enumerate(content))

    def _frame(self, kind: int, content: bytes) -> None:
        size = len(content)
        length = bytes([size]) if size < 126 else b"\x7e" + struct.pack("!H", size)
        with self._lock:
            self._handler.wfile.write(bytes([128 | kind]) + length + content)
            self._handler.wfile.flush()


def answer_exec(handler: BaseHTTPRequestHandler, code: int, output: str) -> None:
    """Of a command that has exited with ``code``."""
    connection = WebSocket(handler)
    if output:
        connection.send(2, output.encode())
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if code:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status |= {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    connection.send(ERROR_CHANNEL, json.dumps(status).encode())
    connection.close()


def forward(handler: BaseHTTPRequestHandler, port: int, local_port: int) -> None:
    """Copy between the client and a local server, which stands for a pod's ``port``."""
    connection = WebSocket(handler)
    for channel in (0, 1):  # data and errors
        connection.send(channel, struct.pack("<H", port))
    with socket.create_connection(("127.0.0.1", local_port)) as server:
        back = threading.Thread(target=_send_all, args=(server, connection), daemon=True)
        back.start()
        while (message := connection.receive()) is not None:
            server.sendall(message[1:])
        server.shutdown(socket.SHUT_RDWR)
        back.join()


def _send_all(server: socket.socket, connection: WebSocket) -> None:
    try:
        while content := server.recv(CHUNK // 2):
            connection.send(0, content)
        connection.close()
    except OSError:
        return
