"""Serves the page with NiceGUI in the environment `page`; `serve.py` starts it.

Imports nothing of penstock, which that environment does not have. Reads changes of the view from
the standard input, one JSON object per line, and asks on the standard output for edits and for
recorded requests.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse
from nicegui import Client, app, ui

FOLDER = Path(__file__).parent
POINTS = 300  # of the charts: ten minutes, see `POINT_S` of serve.py
MOST_TOKENS = 512  # of an answer in the chat
MOST_BYTES = 200_000  # of a request to the server
REPLY_S = 30  # after which an edit that penstock has not confirmed is reported
LONGEST_ID = 200  # characters; x-request-id is chosen by clients
# Styles and scripts are inline, as NiceGUI writes them; nothing comes from elsewhere.
POLICY = (
    b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: ws:; "
    b"frame-ancestors 'none'; form-action 'self'; base-uri 'self'"
)
UNFRAMED = ((b"x-frame-options", b"DENY"), (b"content-security-policy", POLICY))
ORDERS = ("newest", "slowest")
CHARTS = (("Latency", "ms", ("TTFT p50", "ITL p50")), ("Throughput", "1/s", ("requests", "tokens")))


class Live:
    """The current view, and what waits for a reply."""

    def __init__(self, allow_edit: bool, has_requests: bool) -> None:
        self.allow_edit = allow_edit
        self.has_requests = has_requests
        self.view: dict[str, Any] = {"allow_edit": allow_edit, "has_requests": has_requests}
        self.points: deque[list[float | None]] = deque(maxlen=POINTS)
        self.chat_url: str | None = None
        self.greeted: set[str] = set()
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def receive(self, message: dict[str, Any]) -> None:
        """Apply a message of the parent process, and send what changed to the browsers."""
        if "reply" in message:
            asked = self._asked.pop(message.pop("reply"), None)
            if asked is not None and not asked.done():
                asked.set_result(message)
            return
        self.chat_url = message.pop("chat_url", self.chat_url)
        point = message.get("point")
        if point:
            self.points.append(point)
        changed = {key: value for key, value in message.items() if key != "point"}
        rows = {**self.view.get("rows", {}), **changed.get("rows", {})}
        self.view |= changed
        order = self.view.get("order", [])
        self.view["rows"] = {key: rows[key] for key in order if key in rows}
        self._send(message)

    def _send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message)
        connected = [c for c in Client.instances.values() if c.has_socket_connection]
        self.greeted &= {client.id for client in connected}
        for client in connected:
            if client.id in self.greeted:
                client.run_javascript(f"penstock.update({text})")
            else:
                self.greeted.add(client.id)
                full = json.dumps({**self.view, "points": list(self.points)})
                client.run_javascript(f"penstock.update({full})")

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The reply of the parent process. TimeoutError after `REPLY_S`."""
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        print(json.dumps({**asked, "ask": number}), flush=True)
        return await asyncio.wait_for(self._asked[number], REPLY_S)


class Guard:
    """Rejects requests of other sites: by the Host header (DNS rebinding) and by the Origin."""

    def __init__(self, inner: Any, port: int) -> None:
        self._inner = inner
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket") and not self._is_own(scope):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            text = {"error": "the request comes from another site"}
            await JSONResponse(text, status_code=403)(scope, receive, send)
            return
        await self._inner(scope, receive, lambda message: send(_unframed(message)))

    def _is_own(self, scope: Any) -> bool:
        headers = {
            name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        origin = headers.get("origin")
        is_write = scope["type"] == "websocket" or scope.get("method") not in ("GET", "HEAD")
        if origin is None:
            is_same = not is_write or headers.get("sec-fetch-site", "same-origin") == "same-origin"
        else:
            is_same = origin.removeprefix("http://") in self._hosts
        return headers.get("host") in self._hosts and is_same


def _unframed(message: dict[str, Any]) -> dict[str, Any]:
    """The beginning of a response with headers that forbid other sites to show it in a frame, in
    which a user could be led to click on an edit."""
    if message["type"] != "http.response.start":
        return message
    return {**message, "headers": [*message.get("headers", ()), *UNFRAMED]}


def page(live: Live) -> None:
    """One browser tab."""
    ui.add_head_html(f"<style>{(FOLDER / 'page.css').read_text()}</style>")
    ui.html((FOLDER / "page.html").read_text(), sanitize=False)
    with ui.element("section").classes("charts").props('aria-label="Charts"'):
        charts = [_chart(*chart) for chart in CHARTS]
    script = (FOLDER / "page.js").read_text().replace("CHART_IDS", str([c.id for c in charts]))
    script = script.replace("POINTS", str(POINTS))
    script += (FOLDER / "request_path.js").read_text()
    ui.add_body_html(f"<script>{script}</script>")


def _chart(title: str, unit: str, names: tuple[str, ...]) -> Any:
    options = {
        "animation": False,
        "title": {"text": f"{title} ({unit})", "textStyle": {"fontSize": 14}},
        "aria": {"enabled": True},
        "legend": {"top": 0, "right": 0},
        "grid": {"left": 50, "right": 10, "top": 40, "bottom": 25},
        "xAxis": {"type": "time", "axisLabel": {"hideOverlap": True}, "splitNumber": 4},
        "yAxis": {"type": "value", "min": 0},
        "series": [{"name": n, "type": "line", "showSymbol": False, "data": []} for n in names],
    }
    chart = ui.echart(options, renderer="svg").classes("chart")
    return chart.props(f'role="img" aria-label="{title} ({unit}) over the last ten minutes"')


def add_routes(live: Live) -> None:
    async def scale(request: Request) -> JSONResponse:
        if not live.allow_edit:
            return _problem("the page was started without --allow-edit", 403)
        asked = await _body(request)
        pool, replicas = asked.get("pool"), asked.get("replicas")
        is_pool = isinstance(pool, str) and len(pool) <= LONGEST_ID and pool.isprintable()
        if not is_pool or not isinstance(replicas, int) or isinstance(replicas, bool):
            return _problem("pool must be a name and replicas an integer", 400)
        try:
            done = await live.ask({"pool": pool, "replicas": replicas})
        except TimeoutError:
            reason = f"penstock did not confirm the change within {REPLY_S} s; check the events"
            return _problem(reason, 504)
        return _problem(done["error"], 409) if done.get("error") else JSONResponse({"ok": True})

    async def chat(request: Request) -> JSONResponse | StreamingResponse:
        asked = await _body(request)
        prompt = asked.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            return _problem("the message is empty", 400)
        if live.chat_url is None or not live.view.get("models"):
            return _problem("the graph is not ready", 503)
        return StreamingResponse(_answer(live, prompt), media_type="application/x-ndjson")

    async def requests(request: Request) -> JSONResponse:
        if not live.has_requests:
            return _problem("the page has no traces", 404)
        asked = await _body(request)
        order, identity = asked.get("order"), asked.get("id")
        if isinstance(identity, str) and 0 < len(identity) <= LONGEST_ID:
            question = {"id": identity}
        elif "id" not in asked and order in ORDERS:
            question = {"order": order}
        else:
            expected = f"id of 1 to {LONGEST_ID} characters, or order: {' or '.join(ORDERS)}"
            return _problem(f"expected {expected}", 400)
        try:
            reply = await live.ask(question)
        except TimeoutError:
            return _problem(f"penstock did not read the traces within {REPLY_S} s", 504)
        return _problem(reply["error"], 409) if "error" in reply else JSONResponse(reply)

    app.exception_handler(_TooLargeError)(_too_large)
    app.post("/api/scale")(scale)
    app.post("/api/requests")(requests)
    app.post("/api/chat", response_model=None)(chat)


def _problem(text: str, status: int) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status)


class _TooLargeError(Exception):
    """A message of a browser is larger than `MOST_BYTES`."""


async def _too_large(_request: Request, _error: Exception) -> JSONResponse:
    return _problem(f"the message is larger than {MOST_BYTES // 1000} kB", 413)


async def _body(request: Request) -> dict[str, Any]:
    """Empty if it is not a JSON object."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise _TooLargeError
    try:
        question = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return question if isinstance(question, dict) else {}


async def _answer(live: Live, prompt: str) -> AsyncIterator[str]:
    """Lines of JSON: parts of the text, then the workers and the cached tokens, or an error."""
    asked = {
        "model": live.view["models"][0],
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": MOST_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
        "nvext": {"extra_fields": ["worker_id"]},
    }
    served: dict[str, Any] = {}
    completion = ""
    usage: dict[str, Any] = {}
    try:
        async with (
            httpx.AsyncClient(timeout=120, trust_env=False) as client,
            client.stream("POST", f"{live.chat_url}/chat/completions", json=asked) as response,
        ):
            if response.status_code != 200:
                reason = (await response.aread()).decode("utf-8", "replace")[:500]
                yield json.dumps({"error": f"HTTP {response.status_code}: {reason}"}) + "\n"
                return
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                completion = chunk.get("id") or completion
                served |= (chunk.get("nvext") or {}).get("worker_id") or {}
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices") or ():
                    if text := (choice.get("delta") or {}).get("content"):
                        yield json.dumps({"text": text}) + "\n"
    except (httpx.HTTPError, ValueError) as error:
        yield json.dumps({"error": f"the endpoint failed: {error or type(error).__name__}"}) + "\n"
        return
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    names = live.view.get("worker_ids", {})
    ids = [served[key] for key in ("prefill_worker_id", "decode_worker_id") if served.get(key)]
    workers = [names.get(f"{worker_id:x}", f"{worker_id:x}") for worker_id in dict.fromkeys(ids)]
    prompt_tokens = usage.get("prompt_tokens")
    about = {"workers": workers, "cached": cached, "prompt": prompt_tokens, "id": completion}
    yield json.dumps(about) + "\n"


async def listens(port: int) -> None:
    """Return when the server accepts connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


async def read_parent(live: Live, port: int) -> None:
    """Until the parent process ends."""
    reader = asyncio.StreamReader(limit=2**24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await listens(port)
    print(json.dumps({"ready": True}), flush=True)
    while line := await reader.readline():
        live.receive(json.loads(line))
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--allow-edit", action="store_true")
    parser.add_argument("--requests", action="store_true")
    args = parser.parse_args()
    live = Live(args.allow_edit, args.requests)
    app.add_middleware(Guard, port=args.port)
    add_routes(live)
    ui.page("/", title="penstock")(lambda: page(live))
    tasks: list[asyncio.Task[None]] = []  # a task without a reference may be collected
    app.on_startup(lambda: tasks.append(asyncio.create_task(read_parent(live, args.port))))
    ui.run(
        host="127.0.0.1",
        port=args.port,
        reload=False,
        show=False,
        dark=None,
        language="en-US",
        favicon="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E",
        show_welcome_message=False,
        tailwind=False,
    )


if __name__ in ("__main__", "__mp_main__"):
    main()
