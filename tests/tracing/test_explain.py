"""Which stage and cause an explanation names, and for which IDs a request is found."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from penstock.tracing.explain import (
    Cause,
    Explanation,
    RequestTimeline,
    UnknownRequestError,
    explain,
    find,
)
from penstock.tracing.report import explanation_document, explanation_lines
from penstock.tracing.requests import StageName, requests_of
from penstock.tracing.spans import decode
from tests.tracing.build import Trace, peers, requests


def explained(*more: Trace, record: bool = True, **changes: Any) -> Explanation:
    slow = Trace("slow", at_ms=50_000, client="my-id", **changes)
    return explain(requests(*peers(), slow, *more, record=record), "slow")


def named(explanation: Explanation) -> tuple[StageName, Cause | None]:
    """The slow stage, and its cause."""
    assert explanation.slow is not None
    return explanation.slow.stage.name, explanation.cause


@pytest.mark.parametrize(
    ("changes", "stage", "cause"),
    [
        ({"prefill_ms": 90.0}, StageName.PREFILL, Cause.SLOW_WORKER),
        ({"prefill_ms": 90.0, "cached": 0}, StageName.PREFILL, Cause.COLD_PREFIX),
        ({"transfer_ms": 90.0}, StageName.KV_TRANSFER, Cause.KV_TRANSFER),
        ({"decode_ms": 190.0}, StageName.DECODE, Cause.SLOW_WORKER),
        ({"response_ms": 90.0}, StageName.RESPONSE, Cause.SLOW_CLIENT),
    ],
)
def test_the_stage_with_the_largest_excess_is_named(
    changes: dict[str, Any], stage: StageName, cause: Cause
) -> None:
    explanation = explained(**changes)
    assert named(explanation) == (stage, cause)
    assert f"slow stage: {stage}" in "\n".join(explanation_lines(explanation))
    assert explanation_document(explanation)["slow_stage"] == str(stage)


@pytest.mark.parametrize(("worker", "cause"), [("11", Cause.QUEUE), ("12", Cause.SLOW_WORKER)])
def test_prompts_before_it_at_the_same_worker_are_a_queue(worker: str, cause: Cause) -> None:
    changes: dict[str, Any] = {"prefill_ms": 60.0, "cached": 0, "worker": worker}
    before = [Trace(f"b{i}", at_ms=49_990 + i, **changes) for i in range(4)]
    assert explained(*before, prefill_ms=90.0).cause is cause


def test_other_sequences_at_the_decode_worker_are_contention() -> None:
    concurrent = [Trace(f"o{i}", at_ms=50_010 + i) for i in range(4)]
    assert explained(*concurrent, decode_ms=190.0).cause is Cause.DECODE_CONTENTION


@pytest.mark.parametrize(
    ("changes", "reason", "next_step"),
    [
        (
            {"decode_ms": 190.0},
            "a client that reads slowly has the same effect",
            "Check that the client reads the stream without pauses",
        ),
        ({"transfer_ms": 90.0}, "has no free KV blocks", "KV use of the decode workers"),
    ],
)
def test_what_the_spans_cannot_tell_apart_is_named_too(
    changes: dict[str, Any], reason: str, next_step: str
) -> None:
    explanation = explained(**changes)
    assert reason in explanation.reason
    assert next_step in explanation.next_step


@pytest.mark.parametrize("changes", [{}, {"decode_ms": 115.0, "output": 39}])
def test_a_usual_request_has_no_slow_stage(changes: dict[str, Any]) -> None:
    """A longer output takes longer to decode."""
    explanation = explained(**changes)
    assert explanation.slow is None
    assert "no slow stage: no stage is slower than usual" in "\n".join(
        explanation_lines(explanation)
    )


@pytest.mark.parametrize(
    ("changes", "stage", "cause", "reason"),
    [
        (
            {"prefill_ms": 52_370.0, "input": 90_000, "cached": 1_000},
            StageName.PREFILL,
            Cause.LONG_PROMPT,
            "computed 89,000 uncached tokens of a prompt of 90,000; a wait",
        ),
        (
            {"decode_ms": 9_000.0, "output": 4_000},
            StageName.DECODE,
            Cause.LONG_OUTPUT,
            "decoded 4,000 tokens in 9.0 s",
        ),
        ({"transfer_ms": 9_000.0}, StageName.KV_TRANSFER, Cause.KV_TRANSFER, "KV transfer"),
    ],
)
def test_a_stage_with_most_of_the_time_is_named_without_peers(
    changes: dict[str, Any], stage: StageName, cause: Cause, reason: str
) -> None:
    explanation = explain(requests(*peers(3), Trace("slow", at_ms=9_000, **changes)), "slow")
    assert named(explanation) == (stage, cause)
    assert reason in explanation.reason
    text = "\n".join(explanation_lines(explanation))
    assert f"longest stage: {stage} took" in text
    assert "← longest" in text
    assert "no slow stage" not in text


def test_without_peers_a_slow_client_is_not_a_long_output() -> None:
    slow = Trace("slow", at_ms=9_000, decode_ms=10_000.0, read=(10_017.5, 9_000.0))
    explanation = explain(requests(*peers(3), slow), "slow")
    assert named(explanation) == (StageName.RESPONSE, Cause.SLOW_CLIENT)


def test_without_peers_no_stage_is_named_unless_it_took_most_of_the_time() -> None:
    traced = requests(*peers(3), Trace("slow", at_ms=9_000, prefill_ms=200.0))
    explanation = explain(traced, "slow")
    assert explanation.slow is None
    assert "recorded requests of similar length: 3; 5 are needed" in explanation.reason


def test_requests_of_another_length_are_no_peers() -> None:
    long = [Trace(f"l{i}", at_ms=1000.0 * i, input=9_000, prefill_ms=400.0) for i in range(9)]
    traced = requests(*long, Trace("slow", at_ms=50_000, prefill_ms=90.0))
    assert explain(traced, "slow").peers == 0


def test_the_stages_add_up_to_the_total() -> None:
    request = explained(prefill_ms=90.0).request
    assert sum(stage.ms for stage in request.stages) == pytest.approx(request.total_ms)
    names = [name for name in StageName if name is not StageName.ROUTING]  # of one pool
    assert [stage.name for stage in request.stages] == names


def test_clocks_that_differ_are_noted_and_no_stage_is_negative() -> None:
    explanation = explained(skew_ms=40.0)
    assert all(stage.stage.ms >= 0 for stage in explanation.stages)
    assert explanation.notes[0].startswith("The clocks of frontend and worker differ by at least 3")


def test_without_records_the_note_says_what_is_unknown() -> None:
    explanation = explained(record=False)
    assert explanation.request.cached_tokens is None
    assert "has no record of this request" in explanation.notes[0]


def test_a_request_is_found_by_each_of_its_ids() -> None:
    traced = requests(*peers(), Trace("0d96b72d-26ac", client="my-id"))
    expected = next(request for request in traced if request.client_id == "my-id")
    for name in ("0d96b72d-26ac", "chatcmpl-0d96b72d-26ac", "my-id", expected.trace_id, "0d96"):
        assert find(traced, name) is expected
    for name in ("peer", "0d9", "chatcmpl-", "other", ""):
        with pytest.raises(UnknownRequestError):
            find(traced, name)


@pytest.mark.parametrize(
    ("blocked_ms", "changes", "stage", "cause"),
    [
        (500.0, {}, StageName.RESPONSE, Cause.SLOW_CLIENT),
        (1.0, {}, StageName.RESPONSE, Cause.FRONTEND),
        # A worker that waits for the client is not slow.
        (500.0, {"decode_ms": 560.0}, StageName.RESPONSE, Cause.SLOW_CLIENT),
        # The client paused only a little.
        (30.0, {"decode_ms": 560.0}, StageName.DECODE, Cause.SLOW_WORKER),
    ],
)
def test_the_response_ends_when_the_client_has_read_it(
    blocked_ms: float, changes: dict[str, Any], stage: StageName, cause: Cause
) -> None:
    """A usual request takes 77.5 ms, of which decode takes 60 ms."""
    slow = Trace("slow", at_ms=50_000, read=(577.5, blocked_ms), **changes)
    explanation = explain(requests(*peers(read=(77.6, 0.0)), slow), "slow")
    assert named(explanation) == (stage, cause)
    assert explanation.slow is not None
    assert explanation.slow.excess_ms == pytest.approx(500, abs=30)  # without a short pause
    assert explanation.request.total_ms == pytest.approx(577.5)
    assert ("client" in explanation.reason) == (stage is StageName.RESPONSE)
    stages = explanation.stages
    assert [c.stage.start_ms for c in stages[1:]] == [c.stage.end_ms for c in stages[:-1]]


def test_the_prefill_worker_of_another_router_mode_is_known() -> None:
    slow = Trace("slow", at_ms=50_000, kv_router=False, prefill_ms=90.0)
    explanation = explain(requests(*peers(kv_router=False), slow), "slow")
    assert explanation.request.prefill is not None
    assert explanation.request.prefill.worker == "11"
    assert named(explanation)[0] is StageName.PREFILL


def test_a_failed_request_is_explained_without_peers() -> None:
    failed = Trace("slow", at_ms=99_000, outcome="error", input=0, output=0)
    explanation = explain(requests(*peers(), failed), "slow")
    assert explanation.peers == 0
    assert explanation.reason == "the request ended with: error"
    assert "penstock logs" in explanation.next_step


def test_the_timeline_equals_a_scan_of_all_requests() -> None:
    random = Random(3)
    traces = [
        Trace(
            f"r{n}",
            at_ms=random.randrange(0, 400, 10),
            prefill_ms=random.choice([0.0, 3.0, 90.0]),
            decode_ms=random.choice([1.0, 60.0, 300.0]),
            input=random.randrange(1, 900),
            worker=random.choice(["11", "12"]),
        )
        for n in range(120)
    ]
    traced = requests(*traces)
    timeline = RequestTimeline(traced)
    for request in traced:
        assert request.prefill is not None
        assert request.decode is not None
        now, ahead, held = request.prefill.start_ns, 0.0, 0
        for other in traced:
            assert other.prefill is not None
            assert other.decode is not None
            begin, end = other.prefill.start_ns, other.start_ns + int(1e6 * other.stages[2].end_ms)
            if other is not request and other.prefill.worker == request.prefill.worker:
                rest = (end - now) / max(end - begin, 1) if begin <= now < end else 0.0
                ahead += (other.input_tokens - (other.cached_tokens or 0)) * rest
            overlaps = (
                other.decode.start_ns < request.decode.end_ns
                and other.decode.end_ns > request.decode.start_ns
            )
            held += (other.input_tokens + other.output_tokens) * overlaps
        assert timeline.queued_tokens(request) == pytest.approx(ahead)
        assert timeline.concurrent_tokens(request.decode) == held


@pytest.mark.parametrize("phase", ["Prefill", "Decode"])
def test_a_request_without_the_spans_of_its_workers_is_not_listed(phase: str) -> None:
    decoded = decode(Trace("one").messages())
    assert len(requests_of(decoded)) == 1
    spans = tuple(span for span in decoded.spans if span.attributes.get("phase") != phase)
    assert requests_of(replace(decoded, spans=spans)) == ()


def test_a_worker_whose_own_span_is_missing_has_no_service() -> None:
    decoded = decode(Trace("one").messages())
    spans = tuple(span for span in decoded.spans if span.name != "handle_payload")
    (request,) = requests_of(replace(decoded, spans=spans))
    assert request.prefill is not None
    assert (request.prefill.worker, request.prefill.service) == ("11", "")
