"""An OpenAI endpoint that serves as long as enough pods of the emulated cluster are ready."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.emulated_cluster.kubelet import is_ready
from tests.support.emulated_cluster.store import Store
from tests.support.scripted_http import body_of, respond, serving

TOKEN_S = 0.002


@contextmanager
def endpoint(store: Store, **needs: int) -> Iterator[int]:
    """The local port of an endpoint that needs so many ready pods of each component."""

    def has_pods() -> bool:
        pods = filter(is_ready, store.of_kind("Pod"))
        labels = (pod["metadata"].get("labels", {}) for pod in pods)
        return Counter(needs) <= Counter(named.get("penstock/component") for named in labels)

    def handle(request: BaseHTTPRequestHandler) -> None:
        if request.command == "GET":
            respond(request, json.dumps({"data": [{"id": "m"}]}).encode())
            return
        tokens = int(json.loads(body_of(request))["max_tokens"])
        if not has_pods():
            respond(request, b'{"error": "no worker"}', 503)
            return
        chunk = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
        usage = {"choices": [], "usage": {"completion_tokens": tokens}}
        events = [json.dumps(chunk)] * tokens + [json.dumps(usage), "[DONE]"]
        time.sleep(TOKEN_S * tokens)
        respond(request, "".join(f"data: {event}\n\n" for event in events).encode())

    with serving(handle) as url:
        yield int(url.rpartition(":")[2])
