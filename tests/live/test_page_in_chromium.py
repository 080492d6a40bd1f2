"""The live page in a browser: content, updates, chat, edits, keyboard, and requests of other sites.

The server is real; the graph is a source that the test changes.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest

from penstock.cli.main import main
from penstock.errors import PortInUseError
from penstock.live.model import LiveSnapshot
from penstock.live.page.serve import PageOptions, serve
from penstock.live.snapshot import stopped
from penstock.local.events import Event, EventKind
from penstock.local.reconcile import ReplicaState
from tests.docs.test_documents import module
from tests.live.constructed import DECODE_PORT, PREFILL_PORT, busy
from tests.support.documents import ROOT
from tests.support.scripted_http import body_of, send_part, serving
from tests.support.waiting import LIMIT_S

BROWSER = module(ROOT / "docs" / "pictures" / "browser.py")
QUICKSTART = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"
BOUND_S = 15.0  # of an update on a busy machine; benchmarks/live_page.py measures it
LATENCY = "[...document.querySelectorAll('.chart svg path')].length"

pytestmark = [
    pytest.mark.needs("chromium", "page"),
    pytest.mark.slow,
    pytest.mark.xdist_group("chromium"),
]


class Graph:
    """A source whose snapshot the test sets."""

    def __init__(self, chat_url: str | None = None) -> None:
        self.found: LiveSnapshot = busy()
        self.chat_url = chat_url

    async def snapshot(self) -> LiveSnapshot:
        return replace(self.found, time_s=time.time())


@contextmanager
def serving_page(graph: Graph, options: PageOptions) -> Iterator[str]:
    """The page's URL; its server ends with the context."""
    urls: Queue[str] = Queue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(serve(graph, options, urls.put))

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield urls.get(timeout=LIMIT_S)
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def answer(request: BaseHTTPRequestHandler) -> None:
    """A streamed chat completion of a prefill and a decode worker."""
    asked = json.loads(body_of(request))
    assert asked["stream_options"] == {"include_usage": True}
    text = asked["messages"][0]["content"]
    usage = {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 16}}
    workers = {"prefill_worker_id": PREFILL_PORT, "decode_worker_id": DECODE_PORT}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": "You said: "}}]},
        {"choices": [{"delta": {"content": text}}], "nvext": {"worker_id": workers}},
        {"choices": [], "usage": usage},
    ]
    request.send_response(200)
    request.send_header("Content-Type", "text/event-stream")
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    for chunk in chunks:
        send_part(request, f"data: {json.dumps(chunk)}\n\n".encode())
    send_part(request, b"")


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with BROWSER.browser() as page:
        yield page


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Graph, str, Path]]:
    """A page that may edit a copy of the quickstart graph, which is not up."""
    path = tmp_path_factory.mktemp("page") / "graph.yaml"
    path.write_text(QUICKSTART.read_text())
    options = PageOptions(graph=path, port=0, allow_edit=True, interval_s=0.05)
    with serving(answer) as url:
        graph = Graph(f"{url}/v1")
        with serving_page(graph, options) as page:
            yield graph, page, path


def errors(page: Any) -> list[str]:
    """What the console of the browser shows."""
    kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    return [str(event) for event in page.events if event["method"] in kinds]


def requested(page: Any) -> list[str]:
    sent = [event for event in page.events if event["method"] == "Network.requestWillBeSent"]
    return [event["params"]["request"]["url"] for event in sent]


def text_of(page: Any, name: str) -> str:
    return str(page.evaluate(f"document.getElementById('{name}').textContent"))


def is_shown(text: str) -> str:
    return f"document.body?.innerText.includes({json.dumps(text)})"


def opened(page: Any, url: str, *, is_dark: bool = False) -> None:
    page.open(url, 1280, 900, is_dark=is_dark)
    page.wait_for(is_shown("decode.0"))


def press(tab: Any, key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        tab.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key=key,
            code=key,
            windowsVirtualKeyCode=code,
            **({"text": text} if text else {}),
        )


def test_the_page_shows_the_graph_and_loads_nothing_else(tab: Any, served: Any) -> None:
    graph, url, _ = served
    graph.found = busy()
    for is_dark in (False, True):
        opened(tab, url, is_dark=is_dark)
        tab.wait_for(f"{LATENCY} > 0")
        assert "graph.yaml: ready" in text_of(tab, "title")
        for text in ("4.0 req/s", "KV 3.1 MB/s", "prefill 1/1", "frontend 1/1"):
            assert text in text_of(tab, "topology")
        rows = tab.evaluate(
            "[...document.querySelectorAll('#workers tbody tr')].map(r => r.innerText)"
        )
        assert [row.split()[0] for row in rows] == ["frontend.0", "prefill.0", "decode.0"]
        assert rows[2].split()[1:6] == ["ready", "2", "2", "25%", "40%"]
        back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(13, 17, 23)" if is_dark else "rgb(255, 255, 255)")
        assert errors(tab) == []
        assert {
            httpx.URL(address).netloc
            for address in requested(tab)
            if not address.startswith("data:")
        } == {httpx.URL(url).netloc}


def test_an_event_and_a_crash_appear_without_a_reload(tab: Any, served: Any) -> None:
    graph, url, _ = served
    graph.found = busy()
    opened(tab, url)
    tab.evaluate(
        "window.seen = null; new MutationObserver(() => { window.seen ??= Date.now(); })"
        ".observe(document.getElementById('events'), { childList: true }) || 0"
    )
    at = time.time()
    crash = Event(time_s=at, kind=EventKind.CRASH, subject="decode.0", text="exited with code -9")
    decode = replace(graph.found.workers[2], state=ReplicaState.CRASHED, running=None)
    graph.found = replace(
        graph.found,
        workers=(*graph.found.workers[:2], decode),
        events=(crash,),
        alerts=("decode.0 has crashed",),
    )
    tab.wait_for("window.seen !== null")
    assert 0 <= tab.evaluate("window.seen") / 1000 - at + 0.01 < BOUND_S
    assert "crash: decode.0: exited with code -9" in text_of(tab, "events")
    assert text_of(tab, "alerts") == "decode.0 has crashed"
    tab.wait_for("document.querySelector('td.crashed') !== null")
    assert errors(tab) == []


def test_a_graph_that_stops_is_named_and_the_page_stays(tab: Any, served: Any) -> None:
    graph, url, _ = served
    graph.found = busy()
    opened(tab, url)
    graph.found = stopped("graph.yaml", (), 0.0)
    tab.wait_for("document.getElementById('title').textContent === 'graph.yaml: stopped'")
    tab.wait_for("document.querySelectorAll('#workers tbody tr').length === 0")
    assert errors(tab) == []


def test_the_chat_streams_an_answer_and_names_its_workers(tab: Any, served: Any) -> None:
    graph, url, _ = served
    graph.found = busy()
    opened(tab, url)
    tab.evaluate("document.getElementById('prompt').focus() || 0")
    tab.call("Input.insertText", text="hello <b>you</b>")
    tab.evaluate("document.querySelector('#chat button').focus() || 0")
    press(tab, "Enter", 13, "\r")
    tab.wait_for(is_shown("prompt tokens were cached"))
    assert text_of(tab, "answer") == "You said: hello <b>you</b>"
    assert text_of(tab, "served") == (
        "Served by prefill.0 and decode.0; 16 of 20 prompt tokens were cached."
    )
    assert errors(tab) == []


def test_tab_reaches_every_control_in_order_and_each_has_a_name(tab: Any, served: Any) -> None:
    graph, url, _ = served
    graph.found = busy()
    opened(tab, url)
    tab.wait_for("!document.getElementById('scaling').hidden")
    tab.evaluate("document.activeElement.blur() || 0")
    focused = []
    for _ in range(8):
        press(tab, "Tab", 9)
        focused.append(
            tab.evaluate(
                "(e => e.labels?.[0]?.textContent || e.ariaLabel || "
                "e.getAttribute('aria-label' + 'ledby') || e.textContent)(document.activeElement)"
            )
        )
    assert focused == [
        *("workers-title", "prefill", "Scale prefill", "decode", "Scale decode"),
        *("Message", "Send", "events-title"),
    ]
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = {node["role"]["value"] for node in tree if not node["ignored"]}
    assert {"main", "table", "columnheader", "rowheader", "log", "alert"} <= roles


def test_a_scaling_button_edits_the_graph(tab: Any, served: Any) -> None:
    graph, url, path = served
    graph.found = busy()
    opened(tab, url)
    tab.wait_for("!document.getElementById('scaling').hidden")
    tab.evaluate(
        "(document.getElementById('replicas-decode').value = 3) && "
        "document.querySelector('[aria-label=\"Scale decode\"]').click() || 0"
    )
    tab.wait_for("document.getElementById('scaled').textContent === 'decode: 3 replicas'")
    assert path.read_text().count("replicas: 3") == 1
    text = path.read_text()
    for wrong in ("", "-1"):
        tab.evaluate(
            f"document.getElementById('replicas-decode').value = '{wrong}'; "
            "document.querySelector('[aria-label=\"Scale decode\"]').click(); 0"
        )
        assert tab.evaluate("document.querySelectorAll('#pools input:invalid').length") == 1
    surrogate = httpx.post(f"{url}api/scale", content=b'{"pool": "\\ud800", "replicas": 1}')
    assert surrogate.status_code == 400
    assert path.read_text() == text
    sent = httpx.post(f"{url}api/scale", json={"pool": "decod", "replicas": 1})
    assert (sent.status_code, "Did you mean `decode`" in sent.json()["error"]) == (409, True)
    assert httpx.post(f"{url}api/scale", content=b"[").status_code == 400
    for prompt, error in (
        (" ", "the message is empty"),
        ("x" * 300_000, "the message is larger than 200 kB"),
    ):
        assert httpx.post(f"{url}api/chat", json={"prompt": prompt}).json() == {"error": error}


def test_requests_of_other_sites_are_refused(served: Any) -> None:
    _, url, path = served
    before = path.read_text()
    page_url = url.rstrip("/")
    port = httpx.URL(url).port
    body = {"pool": "decode", "replicas": 5}
    for headers in (
        {"Origin": "http://evil.test"},
        {"Origin": "null"},
        {"Origin": f"https://127.0.0.1:{port}"},
        {"Origin": f"http://127.0.0.1:{(port or 0) + 1}"},
        {"Host": f"evil.test:{port}"},  # DNS rebinding
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert httpx.post(f"{url}api/scale", json=body, headers=headers).status_code == 403
    assert httpx.get(url, headers={"Host": f"evil.test:{port}"}).status_code == 403
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    socket = f"{url}_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    assert httpx.get(socket, headers={**upgrade, "Origin": "http://evil.test"}).status_code == 403
    assert path.read_text() == before
    assert httpx.get(url, headers={"Origin": page_url}).status_code == 200


def test_without_allow_edit_nothing_can_be_edited(
    tab: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(QUICKSTART.read_text())
    options = PageOptions(graph=path, port=0, allow_edit=False, interval_s=0.05)
    with serving_page(Graph(), options) as url:
        opened(tab, url)
        assert tab.evaluate("document.getElementById('scaling').hidden")
        sent = httpx.post(f"{url}api/scale", json={"pool": "decode", "replicas": 5})
        assert sent.status_code == 403
        taken = replace(options, port=httpx.URL(url).port or 0)
        with pytest.raises(PortInUseError, match="--port"):
            asyncio.run(serve(Graph(), taken, print))
        assert main(["up", str(path), "--page", "--page-port", str(taken.port)]) != 0
        assert "--page-port: cannot listen on 127.0.0.1" in capsys.readouterr().err
    assert path.read_text() == QUICKSTART.read_text()
