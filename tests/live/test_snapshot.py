"""Figures of a live view from the metrics of a graph's processes."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace as with_fields

from penstock.live.model import LiveSnapshot, WorkerView
from penstock.live.page.view import view_of
from penstock.live.scrape import Scrapes
from penstock.live.snapshot import snapshot
from penstock.live.text import topology_lines
from penstock.local.events import Event, EventKind
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role
from tests.live.constructed import (
    DECODE_PORT,
    FRONTEND_PORT,
    GENERATE,
    PREFILL_PORT,
    busy,
    frontend_text,
    graph,
    history,
    replica,
    worker_text,
)


def worker(latest: LiveSnapshot, name: str) -> WorkerView:
    return next(w for w in latest.workers if w.name == name)


def test_rates_are_the_increase_of_counters_per_second() -> None:
    totals = busy().totals
    assert totals.request_rate == 4
    assert totals.started_rate == 4
    assert totals.input_token_rate == 400
    assert totals.output_token_rate == 40
    assert totals.prefix_hit_rate == pytest.approx(0.4)
    assert totals.ttft_s == pytest.approx(0.05)
    assert (totals.running, totals.router_queue) == (2, 1)


def test_processes_are_in_the_order_of_a_request_with_their_figures() -> None:
    latest = busy()
    assert [w.name for w in latest.workers] == ["frontend.0", "prefill.0", "decode.0"]
    decode = worker(latest, "decode.0")
    assert (decode.running, decode.queued) == (2, 2)  # one waits in the engine, one before it
    assert decode.kv_usage == 0.25
    assert decode.prefix_hit_rate == pytest.approx(0.4)
    assert decode.request_rate == 4  # without the requests of other endpoints
    assert decode.output_token_rate == 40
    assert decode.itl_s == 0.008
    assert decode.ttft_s is None
    assert worker(latest, "prefill.0").ttft_s == 0.25


def test_what_a_process_does_not_export_is_unknown_and_not_zero() -> None:
    prefill = worker(busy(), "prefill.0")  # a mocker for prefill has no figures of an engine
    assert (prefill.running, prefill.queued) == (2, 1)
    assert prefill.kv_usage is None
    assert prefill.prefix_hit_rate is None
    assert prefill.output_token_rate is None


def test_the_first_scrape_has_gauges_but_no_rates() -> None:
    latest = history([graph()], [{}])
    assert latest.window_s is None
    assert latest.totals.request_rate is None
    assert latest.totals.running == 2
    assert worker(latest, "decode.0").request_rate is None


def test_edges_follow_a_request_to_the_kv_transfer() -> None:
    edges = {(e.source, e.target): e for e in busy().edges}
    assert {pair: edge.request_rate for pair, edge in edges.items()} == {
        ("clients", "frontend"): 4,
        ("frontend", "router"): 4,
        ("router", "prefill"): 4,
        ("router", "decode"): 4,
        ("prefill", "decode"): 4,
    }
    assert edges["prefill", "decode"].byte_rate == 3_100_000
    assert edges["prefill", "decode"].is_kv_transfer


ENGINES = """\
vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc \
vllm:generation_tokens_total
sglang:num_running_reqs sglang:num_queue_reqs sglang:token_usage sglang:generation_tokens_total
trtllm_num_requests_running trtllm_num_requests_waiting trtllm_kv_cache_utilization
""".splitlines()


@pytest.mark.parametrize("names", ENGINES)
def test_each_engine_has_names_of_its_own(names: str) -> None:
    running, waiting, usage, *generated = names.split()

    def text(tokens: int) -> str:
        counter = "".join(f"{name} {tokens}\n" for name in generated)
        return worker_text(0, f"{running} 5\n{waiting} 2\n{usage} 0.5\n{counter}")

    latest = history([graph()] * 2, [{DECODE_PORT: text(0)}, {DECODE_PORT: text(70)}])
    decode = worker(latest, "decode.0")
    assert (decode.running, decode.queued, decode.kv_usage) == (5, 3, 0.5)
    assert decode.output_token_rate == (70 if generated else None)


def sending(sent: int, in_flight: int = 3) -> str:
    text = worker_text(0).replace("} 3\n", f"}} {in_flight}\n")
    return f"{text}dynamo_component_response_bytes_total{{{GENERATE}}} {sent}\n"


def prefilling(tokens: int, last_tokens: int = 1000) -> str:
    """Prompt tokens that the prefill worker has, with 0.25 s for its last 1,000."""
    label = f'{{worker_id="{PREFILL_PORT}"}}'
    names = ("active_prefill_tokens", "last_input_sequence_tokens")
    added = zip(names, (tokens, last_tokens), strict=True)
    lines = "".join(f"dynamo_frontend_worker_{name}{label} {n}\n" for name, n in added if n)
    return frontend_text(0) + lines


STALLED = [sending(100)] * 8
DECODE_HANGS = (
    "decode.0 hangs: 3 requests in flight, and nothing sent for 7 s (stage: KV transfer or decode)"
)
PREFILL_HANGS = "prefill.0 hangs: 3 requests in flight, and nothing sent for 7 s (stage: prefill)"


@pytest.mark.parametrize(
    ("port", "texts", "frontend", "expected"),
    [
        (DECODE_PORT, STALLED, frontend_text(0), [DECODE_HANGS]),
        (DECODE_PORT, [*STALLED[:-1], sending(101)], frontend_text(0), []),
        (DECODE_PORT, [*STALLED[:5], sending(100, in_flight=0), *STALLED[:2]], "", []),
        (DECODE_PORT, [worker_text(0)] * 8, "", []),  # does not count bytes
        (PREFILL_PORT, STALLED, frontend_text(0), [PREFILL_HANGS]),
        (PREFILL_PORT, STALLED, prefilling(2_000), [PREFILL_HANGS]),
        (PREFILL_PORT, STALLED, prefilling(10_000), []),  # 2.5 s, and a margin of three
        (PREFILL_PORT, STALLED, prefilling(2_000, last_tokens=0), []),  # the first one
    ],
)
def test_a_worker_that_sends_nothing_hangs_unless_its_prompts_are_long(
    port: int, texts: list[str], frontend: str, expected: list[str]
) -> None:
    scrapes = [{port: text, FRONTEND_PORT: frontend or frontend_text(0)} for text in texts]
    latest = history([graph()] * len(texts), scrapes)
    assert [alert for alert in latest.alerts if "hangs" in alert] == expected


def test_a_restarted_process_starts_again_without_a_negative_rate() -> None:
    again = graph(
        replica("frontend.0", Role.FRONTEND, 1, FRONTEND_PORT),
        replica("decode.0", Role.DECODE, 9, DECODE_PORT, restarts=1),
    )
    before = {DECODE_PORT: worker_text(500)}
    latest = history([graph(), again, again], [before, {DECODE_PORT: worker_text(1)}, {}])
    decode = worker(latest, "decode.0")
    assert decode.request_rate == 0
    assert decode.restarts == 1


def test_a_counter_that_was_reset_in_the_same_process_counts_from_zero() -> None:
    latest = history(
        [graph()] * 2, [{FRONTEND_PORT: frontend_text(50)}, {FRONTEND_PORT: frontend_text(3)}]
    )
    assert latest.totals.request_rate == 3


def test_a_process_that_hangs_or_refuses_leaves_the_rest_as_it_is() -> None:
    for text in (None, ""):
        latest = history([graph()] * 2, [{}, {DECODE_PORT: text, PREFILL_PORT: worker_text(6)}])
        assert worker(latest, "decode.0").responds is False
        assert worker(latest, "decode.0").running is None
        assert worker(latest, "prefill.0").request_rate == 6
        assert latest.alerts == ("decode.0 does not return its metrics",)


def test_a_metrics_endpoint_that_returns_something_else_does_not_respond() -> None:
    broken = "dynamo_component_requests_total{ never closed\n"
    latest = history([graph()], [{DECODE_PORT: broken}])
    assert worker(latest, "decode.0").responds is False


def test_a_crashed_worker_is_an_alert_and_not_ready() -> None:
    crashed = replica("decode.0", Role.DECODE, 3, DECODE_PORT, state=ReplicaState.CRASHED)
    latest = history([graph(crashed)], [{}])
    assert latest.alerts == ("decode.0 has crashed and will be restarted",)
    assert [(c.name, c.ready, c.desired) for c in latest.components] == [("decode", 0, 1)]
    assert worker(latest, "decode.0").responds is None


def test_requests_that_hung_are_an_alert_for_a_minute() -> None:
    hangs = [
        Event(time_s=time_s, kind=EventKind.HANG, subject="decode.0", text="")
        for time_s in (30.0, 50.0, 95.0)
    ]
    alerts = snapshot(graph(), Scrapes(), hangs, 100.0).alerts
    text = "decode.0: 2 requests hung in the last minute (stage: KV transfer or decode)"
    assert [alert for alert in alerts if "hung" in alert] == [text]


def test_a_pool_without_replicas_stays() -> None:
    state = graph()
    rest = tuple(component for component in state.replicas if component.program != "decode")
    update = {"replicas": rest, "desired_replicas": {**state.desired_replicas, "decode": 0}}
    latest = snapshot(with_fields(state, **update), Scrapes(), (), 0.0)
    (decode,) = [component for component in latest.components if component.name == "decode"]
    assert (decode.role, decode.ready, decode.desired) == ("decode", 0, 0)
    assert ["decode", 0] in view_of(latest)["pools"]
    assert topology_lines(latest, 160)[0].endswith("→ decode 0/0")
    assert latest.alerts == ("decode has no replicas",)


def test_rates_cover_the_last_seconds_only() -> None:
    texts = [{FRONTEND_PORT: frontend_text(100 if n >= 2 else 0)} for n in range(12)]
    latest = history([graph()] * 12, texts)
    assert latest.totals.request_rate == 0  # the requests of the third second are too old
    assert latest.window_s == 5


def test_a_snapshot_is_json() -> None:
    document = json.loads(json.dumps(busy().as_dict()))
    assert document["phase"] == "ready"
    assert document["workers"][2]["kv_usage"] == 0.25
    assert document["workers"][1]["kv_usage"] is None
