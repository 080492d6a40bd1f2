"""The panel of one request in a browser: list, path, chat, keyboard, and texts from clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.live.page.serve import PageOptions
from penstock.live.page.view import RecordedRequests
from penstock.local.state import StateDir
from tests.live import test_page_in_chromium as pages
from tests.live.constructed import PREFILL_PORT
from tests.live.test_page_in_chromium import (
    Graph,
    errors,
    opened,
    press,
    serving_page,
    text_of,
)
from tests.live.test_request_path import store
from tests.support.scripted_http import serving
from tests.tracing.build import Trace, peers

pytestmark = pages.pytestmark
MARKUP = "<img src=x onerror=hacked=1>"
IS_VISIBLE = "document.getElementById('{}').offsetParent !== null"
ROWS = "[...document.querySelectorAll('#recorded tbody tr')].map(row => row.innerText)"


def answer(request: BaseHTTPRequestHandler) -> None:
    """A chat completion with the ID `chatcmpl-late`."""
    usage = {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 16}}
    chunk = {"id": "chatcmpl-late", "choices": [{"delta": {"content": "Hi"}}], "usage": usage}
    body = f"data: {json.dumps(chunk)}\n\n".encode()
    request.send_response(200)
    request.send_header("Content-Type", "text/event-stream")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with pages.BROWSER.browser() as page:
        yield page


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, StateDir]]:
    folder = tmp_path_factory.mktemp("path")
    (folder / "graph.yaml").write_text(pages.QUICKSTART.read_text())
    state = StateDir(folder / "graph.yaml", folder / "state")
    usual = peers(worker=str(PREFILL_PORT))
    slow = Trace(
        *("slow", -50_000), client=MARKUP, prefill_ms=90.0, cached=0, worker=str(PREFILL_PORT)
    )
    store(state, slow, *usual)
    options = PageOptions(
        graph=state.source,
        port=0,
        allow_edit=False,
        interval_s=0.05,
        requests=RecordedRequests(state),
    )
    with serving(answer) as url, serving_page(Graph(f"{url}/v1"), options) as page:
        yield page, state


def test_a_request_of_the_list_is_shown_with_its_slow_stage(tab: Any, served: Any) -> None:
    url, _ = served
    for is_dark in (False, True):
        opened(tab, url, is_dark=is_dark)
        tab.wait_for(f"{ROWS}.length === 9")
        assert text_of(tab, "found") == "9 of 9 recorded requests"
        assert not tab.evaluate(IS_VISIBLE.format("path"))
        tab.evaluate(
            "const order = document.getElementById('order'); order.value = 'slowest';"
            "order.dispatchEvent(new Event('change', { bubbles: true })) || 0"
        )
        tab.wait_for(f"{ROWS}[0].startsWith('slow')")
        assert MARKUP in tab.evaluate(ROWS)[0]
        tab.evaluate("document.querySelector('#recorded button').focus() || 0")
        press(tab, "Enter", 13, "\r")
        tab.wait_for(IS_VISIBLE.format("path"))
        assert tab.evaluate("document.activeElement.id") == "path-title"
        assert text_of(tab, "path-summary").startswith(f"client ID {MARKUP}")
        steps = text_of(tab, "path-steps")
        assert f"prefill worker {PREFILL_PORT} (prefill.0)selected with 9 cached KV" in steps
        assert "prefill (slow)89.9 ms9.9 ms" in text_of(tab, "stages")
        assert "causecold prefix" in text_of(tab, "verdict")
        bars = tab.evaluate(
            "[...document.querySelectorAll('.bar')].map(bar => bar.getBoundingClientRect().x)"
        )
        assert bars == sorted(bars)
        assert len(set(bars)) == len(bars)
        assert tab.evaluate("document.querySelectorAll('.bar.slow').length") == 1
        current = "document.querySelector('[aria-current=true]').textContent"
        assert tab.evaluate(current) == "slow"
        assert tab.evaluate("typeof hacked") == "undefined"
        assert tab.evaluate("document.querySelectorAll('#requests img').length") == 0
        tab.resize(320, 900)  # of a phone; the tables and the stages scroll on their own
        tab.wait_for("document.documentElement.scrollWidth === 320")
        assert errors(tab) == []


def test_an_id_is_entered_with_the_keyboard(tab: Any, served: Any) -> None:
    url, _ = served
    opened(tab, url)
    tab.wait_for(f"{ROWS}.length > 0")
    tab.evaluate("document.getElementById('request-id').focus() || 0")
    focused = []
    for _ in range(5):
        press(tab, "Tab", 9)
        focused.append(
            tab.evaluate("document.activeElement.id || document.activeElement.outerHTML")
        )
    assert focused[1:4] == ["order", "refresh", "listed"]
    assert "Show path" in focused[0]
    assert "peer-7" in focused[4]
    tab.evaluate("document.getElementById('request-id').focus() || 0")
    tab.call("Input.insertText", text=MARKUP.replace("=1", "=2"))
    press(tab, "Enter", 13, "\r")
    tab.wait_for("document.getElementById('found').textContent.includes('onerror=hacked=2')")
    assert not tab.evaluate(IS_VISIBLE.format("path"))
    tab.evaluate("document.getElementById('request-id').value = ' chatcmpl-peer-3 '")
    press(tab, "Enter", 13, "\r")
    tab.wait_for(IS_VISIBLE.format("path"))
    assert text_of(tab, "path-title").startswith("request peer-3 at ")
    assert errors(tab) == []
    nodes = [n for n in tab.call("Accessibility.getFullAXTree")["nodes"] if not n["ignored"]]
    names = {(n["role"]["value"], n.get("name", {}).get("value")) for n in nodes}
    assert {
        ("textbox", "ID (chatcmpl-…, x-request-id, trace ID)"),
        ("combobox", "List"),
        ("table", "Time of each stage"),
        ("region", "Path of a request"),
    } <= names


def test_the_path_of_a_chat_answer_waits_for_its_trace(tab: Any, served: Any) -> None:
    url, state = served
    opened(tab, url)
    tab.wait_for(f"{ROWS}.length > 0")
    assert not tab.evaluate(IS_VISIBLE.format("served-path"))
    tab.evaluate("document.getElementById('prompt').value = 'hello'")
    tab.evaluate("document.querySelector('#chat button').click() || 0")
    tab.wait_for(IS_VISIBLE.format("served-path"))
    tab.evaluate("document.getElementById('served-path').click() || 0")
    tab.wait_for("document.getElementById('found').textContent.startsWith('Waiting')")
    store(state, Trace("late", at_ms=90_000))
    tab.wait_for(IS_VISIBLE.format("path"))
    assert text_of(tab, "path-title").startswith("request late at ")
    tab.wait_for(f"{ROWS}[0].startsWith('late')")
    assert errors(tab) == []


def test_bad_questions_and_other_sites_are_refused(served: Any) -> None:
    url, _ = served
    for body in (b"[", b"{}", b'{"id": ""}', b'{"id": 5}', b'{"order": "x"}', b'{"order": {}}'):
        sent = httpx.post(f"{url}api/requests", content=body)
        assert (sent.status_code, "expected id of" in sent.json()["error"]) == (400, True)
    assert httpx.post(f"{url}api/requests", json={"id": "x" * 201}).status_code == 400
    odd = httpx.post(f"{url}api/requests", content=b'{"id": "\\ud800"}')
    assert odd.json()["is_unknown"]
    other = {"Origin": "http://evil.test"}
    sent = httpx.post(f"{url}api/requests", json={"order": "newest"}, headers=other)
    assert sent.status_code == 403


@pytest.mark.parametrize("has_panel", [True, False])
def test_without_traces_the_panel_says_how_to_record_them(
    tab: Any, tmp_path: Path, has_panel: bool
) -> None:
    state = StateDir(tmp_path / "graph.yaml", tmp_path / "state")
    state.source.write_text(pages.QUICKSTART.read_text())
    options = PageOptions(
        graph=state.source,
        port=0,
        allow_edit=False,
        requests=RecordedRequests(state) if has_panel else None,
    )
    with serving_page(Graph(), options) as url:
        opened(tab, url)
        if has_panel:
            tab.wait_for("document.getElementById('found').textContent.includes('--trace')")
            assert text_of(tab, "found").startswith("The graph was never up. Run `penstock up ")
            assert not tab.evaluate(IS_VISIBLE.format("listed"))
        else:
            sent = httpx.post(f"{url}api/requests", json={"order": "newest"})
            assert sent.status_code == 404
            for hidden in ("requests", "scaling"):
                assert not tab.evaluate(IS_VISIBLE.format(hidden))
