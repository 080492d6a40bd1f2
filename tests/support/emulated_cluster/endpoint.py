"""An OpenAI endpoint that serves as long as enough pods of the emulated cluster are ready."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.emulated_cluster.kubelet import is_ready
from tests.support.emulated_cluster.store import Store
from tests.support.scripted_http import QuietServer

TOKEN_S = 0.002


class _Handler(BaseHTTPRequestHandler):
    store: Store
    needs: Mapping[str, int]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self._serves():
            self._send(503, {"error": "no worker"})
            return
        tokens = int(body["max_tokens"])
        chunk = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
        usage = {"choices": [], "usage": {"completion_tokens": tokens}}
        events = [json.dumps(chunk)] * tokens + [json.dumps(usage), "[DONE]"]
        time.sleep(TOKEN_S * tokens)
        self._reply(200, "".join(f"data: {event}\n\n" for event in events).encode())

    def _serves(self) -> bool:
        ready: Counter[str] = Counter()
        for pod in self.store.of_kind("Pod"):
            name = pod["metadata"].get("labels", {}).get("penstock/component", "")
            ready[name] += is_ready(pod)
        return all(ready[name] >= count for name, count in self.needs.items())

    def _send(self, status: int, content: object) -> None:
        self._reply(status, json.dumps(content).encode())

    def _reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def endpoint(store: Store, **needs: int) -> Iterator[int]:
    """The local port of an endpoint that needs so many ready pods of each component."""
    handler = type("Handler", (_Handler,), {"store": store, "needs": needs})
    server = QuietServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
