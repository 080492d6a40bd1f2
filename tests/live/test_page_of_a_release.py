"""The live page of a release on a cluster: no chat without --url, and no edits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli.main import main
from penstock.live.model import STOPPED
from penstock.live.page.serve import NO_CHAT, PageOptions
from tests.live import test_page_in_chromium as local
from tests.live.constructed import busy

pytestmark = local.pytestmark
tab = local.tab


def is_visible(page: Any, name: str) -> bool:
    return bool(page.evaluate(f"document.getElementById('{name}').checkVisibility()"))


def release() -> local.Graph:
    """As `ClusterGraph` without --url: the release has no endpoint that this machine reaches."""
    graph = local.Graph(chat_url=None)
    graph.found = replace(busy(), graph="quick (namespace default)", endpoint=None)
    return graph


def test_the_chat_is_hidden_with_its_reason_and_nothing_can_be_edited(tab: Any) -> None:
    options = PageOptions(graph=Path("quick.yaml"), port=0, allow_edit=False, interval_s=0.05)
    graph = release()
    with local.serving_page(graph, options) as url:
        local.opened(tab, url)
        assert local.text_of(tab, "title") == "quick (namespace default): ready"
        tab.wait_for(local.is_shown(NO_CHAT))
        assert not is_visible(tab, "chat")
        assert not is_visible(tab, "scaling")
        controls = "[...document.querySelectorAll('button, input, textarea')]"
        assert tab.evaluate(f"{controls}.filter(one => one.checkVisibility()).length") == 0
        body = {"pool": "decode", "replicas": 2}
        assert httpx.post(f"{url}api/scale", json=body).status_code == 403
        assert httpx.post(f"{url}api/chat", json={"prompt": "hello"}).json()["error"]
        graph.found = replace(graph.found, phase=STOPPED, workers=())
        tab.wait_for("document.querySelectorAll('#workers tbody tr').length === 0")
        assert local.errors(tab) == []


def test_with_url_the_release_has_a_chat(tab: Any) -> None:
    options = PageOptions(graph=Path("quick.yaml"), port=0, allow_edit=False, interval_s=0.05)
    graph = release()
    with local.serving(local.answer) as endpoint:
        graph.chat_url = f"{endpoint}/v1"
        with local.serving_page(graph, options) as url:
            local.opened(tab, url)
            assert is_visible(tab, "chat")
            assert not is_visible(tab, "scaling")
            assert NO_CHAT not in tab.evaluate("document.body.innerText")


def test_edits_of_a_release_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--web", "quick.yaml", "--cluster", "--allow-edit"]) == 2
    assert "the page cannot change a release" in capsys.readouterr().err
