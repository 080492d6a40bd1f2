"""Dynamo's own spans: their names, and `penstock trace` on requests to real processes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.local.state import StateDir
from penstock.local.tracing import folder
from penstock.tracing.requests import ROUTES, SPAN_NAMES, requests_of
from penstock.tracing.spans import Decoded, decode
from penstock.tracing.store import read
from tests.e2e.chats import chat
from tests.support.local_graphs import Up
from tests.support.waiting import wait_for

KEY = "tracing: {endpoint: 'http://tempo.monitoring:4317', sample_ratio: 0.0}\n"


def send(graph: GraphProcess, name: str) -> str:
    response = chat(graph, "word " * 90, headers={"x-request-id": name}, max_tokens=8)
    response.raise_for_status()
    return str(response.json()["id"])


def recorded(process: GraphProcess, tmp_path: Path, name: str, workers: int = 1) -> Decoded:
    """What the receiver has stored, once the request ``name`` is complete; ``workers``: that served
    it."""
    traces = folder(StateDir(process.graph, tmp_path / "state"))

    def complete() -> Decoded | None:
        decoded = decode(read(traces))
        roots = [s for s in decoded.spans if s.attributes.get("x_request_id") == name]
        ids = {s.attributes["request_id"] for s in roots}
        names = Counter(span.name for span in roots)
        parents = {s.parent_id for s in roots if s.name == "http-request"}
        has_reads = process.state()["envoy"] or bool(parents & set(decoded.client_reads))
        has_spans = names["handle_payload"] >= workers and has_reads
        return decoded if has_spans and ids <= set(decoded.records) else None

    trace = wait_for(complete, f"a complete trace of {name} in {traces}", look_s=0.2)
    assert trace is not None
    return trace


def test_the_span_names_are_those_that_dynamo_emits(
    up: Up, quickstart: Path, tmp_path: Path
) -> None:
    """With the key in the graph, whose endpoint and ratio apply only on a cluster."""
    quickstart.write_text(quickstart.read_text() + KEY)
    process = up(quickstart)
    response_id = [send(process, f"my-{number}") for number in range(7)][-1]
    names = {span.name for span in recorded(process, tmp_path, "my-6", workers=2).spans}
    assert names == set(SPAN_NAMES) - {ROUTES[1]}

    shown = process.penstock("trace", str(quickstart), response_id)
    assert shown.returncode == 0, shown.stderr
    for stage in ("prefill routing", "KV transfer", "decode", "response"):
        assert stage in shown.stdout
    document = json.loads(process.penstock("trace", str(quickstart), "my-6", "--json").stdout)
    assert document["request"]["prefill_worker"]["service"] == "prefill"
    assert document["request"]["cached_tokens"] > 0
    send(process, "[/b]")  # not markup
    recorded(process, tmp_path, "[/b]", workers=2)
    assert "[/b]" in process.penstock("trace", str(quickstart)).stdout
    listed = json.loads(process.penstock("trace", str(quickstart), "--json").stdout)
    assert listed[1]["request_id"] == document["request"]["request_id"]
    slowest = process.penstock("trace", str(quickstart), "--slowest", "--json").stdout
    durations = [request["total_ms"] for request in json.loads(slowest)]
    assert durations == sorted(durations, reverse=True)

    unknown = process.penstock("trace", str(quickstart), "my-66")
    assert unknown.returncode == 2
    assert "Perhaps you meant my-6" in unknown.stderr


@pytest.mark.nightly
def test_the_spans_of_another_router_mode(up: Up, quickstart: Path, tmp_path: Path) -> None:
    process = up(quickstart, "--trace", "--set", "router.mode=round-robin")
    send(process, "mine")
    decoded = recorded(process, tmp_path, "mine", workers=2)
    assert {span.name for span in decoded.spans} == {"http-request", ROUTES[1], "handle_payload"}
    (request,) = (r for r in requests_of(decoded) if r.client_id == "mine")
    assert request.prefill is not None
    assert request.decode is not None
    assert (request.prefill.service, request.decode.service) == ("prefill", "decode")
    # Envoy buffers the response.
    assert (request.client_blocked_ms is None) == process.state()["envoy"]


def test_without_traces_the_command_says_how_to_record_them(mockers: GraphProcess) -> None:
    shown = mockers.penstock("trace", str(mockers.graph))
    assert shown.returncode == 11
    assert "the graph is up without traces" in shown.stderr
    assert "--trace" in shown.stderr
