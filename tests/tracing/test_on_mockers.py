"""`trace` and the live page say that mockers simulated the engine."""

from __future__ import annotations

import pytest

from penstock.live.page.view import list_reply, path_view
from penstock.local.tracing import environment
from penstock.tracing.explain import explain
from penstock.tracing.report import (
    ON_MOCKERS,
    explanation_document,
    explanation_lines,
    on_mockers,
    request_document,
)
from penstock.tracing.requests import Loaded
from tests.local.builders import deployment, frontend, mocker
from tests.local.test_adapt import adapted
from tests.tracing.build import Trace, requests


@pytest.mark.parametrize("is_mocker", [True, False])
def test_every_output_about_mockers_says_so(is_mocker: bool) -> None:
    traced = requests(Trace("a", mocker=is_mocker))
    explanation = explain(traced, "a")
    assert (ON_MOCKERS in explanation_lines(explanation)[:2]) is is_mocker
    assert explanation_document(explanation)["engine_is_substitute"] is is_mocker
    assert request_document(traced[0])["engine_is_substitute"] is is_mocker
    assert bool(on_mockers(traced)) is is_mocker
    assert (ON_MOCKERS in path_view(explanation, {})["summary"]) is is_mocker
    assert (
        ON_MOCKERS in list_reply(Loaded(requests=traced, unreadable=0), "")["note"]
    ) is is_mocker


def test_spans_of_mockers_go_to_their_own_path_of_the_receiver() -> None:
    """A graph whose own engine is the mocker is no substitute, and no engine runs either."""
    local = adapted(deployment(frontend(), mocker("worker", "agg")))
    endpoints = {
        p.name: environment("http://r", p)["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
        for p in local.programs
    }
    assert endpoints["worker"] == "http://r/mocker/v1/traces"
    assert endpoints["frontend"] == "http://r/v1/traces"
