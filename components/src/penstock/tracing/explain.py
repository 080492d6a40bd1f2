"""Explain one slow request: the stage that made it slow, why, and what to do. Pure functions.

A stage is compared with the same stage of other requests of similar length. `penstock trace` prints
the result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import median

from penstock.tracing.requests import UNKNOWN_OUTCOME, Stage, StageName, TracedRequest, Visit

PEERS = 5  # fewer cannot tell what is usual
SIMILAR = 2.0  # a peer has between half and twice as many tokens
SLOW_SHARE = 0.2  # of the peers' total time; less is the noise between requests
SLOW_MS = 20.0  # excess below this is noise on any machine
MOST = 0.8  # of the request's time; a stage with more is named without peers

ADD_FRONTEND = "Add a frontend: raise `frontend.replicas`."
COMPARE_WORKERS = (
    "Compare the worker with the others: `penstock status` locally, its GPU clock, temperature and "
    "neighbors on a cluster."
)


@dataclass(frozen=True, kw_only=True)
class _Interval:
    """A request at a worker; times in ns since the epoch."""

    start: int
    end: int
    request: TracedRequest


class _Intervals:
    """The intervals of one worker, by their start.

    A search skips those that started more than the longest duration before it. So it is fast as
    long as no request takes a large part of the recorded time.
    """

    def __init__(self, intervals: Iterable[_Interval] = ()) -> None:
        self._by_start = sorted(intervals, key=_start)
        self._longest = max((span.end - span.start for span in self._by_start), default=0)

    def overlapping(self, first: int, last: int) -> Iterator[_Interval]:
        """The intervals that started at ``last`` or before, and ended after ``first``."""
        begin = bisect_right(self._by_start, first - self._longest - 1, key=_start)
        until = bisect_right(self._by_start, last, key=_start)
        return (span for span in self._by_start[begin:until] if span.end > first)


def _start(interval: _Interval) -> int:
    return interval.start


def _by_worker(intervals: Iterable[tuple[str, _Interval]]) -> dict[str, _Intervals]:
    by_worker: dict[str, list[_Interval]] = defaultdict(list)
    for worker, span in intervals:
        by_worker[worker].append(span)
    return {worker: _Intervals(those) for worker, those in by_worker.items()}


class RequestTimeline:
    """The requests of each worker over time."""

    def __init__(self, requests: Sequence[TracedRequest]) -> None:
        self._requests = requests

    @cached_property
    def _prefills(self) -> dict[str, _Intervals]:
        return _by_worker(
            (visit.worker, _Interval(start=visit.start_ns, end=_prefill_end(r), request=r))
            for r in self._requests
            if (visit := r.prefill or r.decode) is not None
        )

    @cached_property
    def _decodes(self) -> dict[str, _Intervals]:
        return _by_worker(
            (r.decode.worker, _Interval(start=r.decode.start_ns, end=r.decode.end_ns, request=r))
            for r in self._requests
            if r.decode is not None
        )

    def queued_tokens(self, request: TracedRequest) -> float:
        """Prompt tokens of earlier requests that the prefill worker had not computed when this one
        came; a request that was partly computed counts with the rest of its time."""
        visit = request.prefill or request.decode
        if visit is None:
            return 0.0
        now = visit.start_ns
        return sum(
            computed_tokens(span.request) * (span.end - now) / max(span.end - span.start, 1)
            for span in self._prefills.get(visit.worker, _Intervals()).overlapping(now, now)
            if span.request is not request
        )

    def concurrent_tokens(self, visit: Visit) -> int:
        """Tokens of all requests that overlapped with ``visit`` at its decode worker, including
        its own."""
        intervals = self._decodes.get(visit.worker, _Intervals())
        return sum(
            span.request.input_tokens + span.request.output_tokens
            for span in intervals.overlapping(visit.start_ns, visit.end_ns - 1)
        )


def computed_tokens(request: TracedRequest) -> int:
    """Tokens of the prompt that the worker had not cached."""
    return request.input_tokens - (request.cached_tokens or 0)


def _prefill_end(request: TracedRequest) -> int:
    """The end of prefill in ns; a request with a worker has this stage."""
    ends = (stage.end_ms for stage in request.stages if stage.name is StageName.PREFILL)
    return request.start_ns + int(next(ends) * 1e6)


class Cause(StrEnum):
    """Why a stage was slow, as far as the spans tell."""

    QUEUE = "queue"
    COLD_PREFIX = "cold prefix"
    LONG_PROMPT = "long prompt"
    LONG_OUTPUT = "long output"
    SLOW_WORKER = "slow worker"
    KV_TRANSFER = "slow KV transfer"
    DECODE_CONTENTION = "decode contention"
    SLOW_CLIENT = "slow client"
    ROUTER_QUEUE = "router queue"
    FRONTEND = "busy frontend"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class StageComparison:
    """A stage of the request and the same stage of its peers."""

    stage: Stage
    usual_ms: float
    """Median of the peers, for decode scaled to this request's output tokens; 0 without peers."""

    @property
    def excess_ms(self) -> float:
        return self.stage.ms - self.usual_ms


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What happened to one request."""

    request: TracedRequest
    peers: int
    """Number of requests it is compared with; below `PEERS`, they do not tell what is usual."""
    stages: tuple[StageComparison, ...]
    slow: StageComparison | None
    """The stage with the largest excess, or without enough peers one that took most of the time;
    None if the request is as fast as its peers, or no stage took most of the time."""
    cause: Cause
    reason: str
    next_step: str
    notes: tuple[str, ...]


class UnknownRequestError(LookupError):
    """No recorded request has this ID."""


def find(requests: Sequence[TracedRequest], requested: str) -> TracedRequest:
    """The request with this ID: Dynamo's, the response's (`chatcmpl-…`), the client's
    (`x-request-id`), the trace's, or an unambiguous beginning of Dynamo's.

    The newest, if a client used its ID twice. UnknownRequestError without a match.
    """
    if not requested:  # not the empty ID of a client that sent none
        raise UnknownRequestError(requested)
    # The IDs of responses are Dynamo's with a prefix of the API.
    bare = requested.removeprefix("chatcmpl-").removeprefix("cmpl-").removeprefix("resp_")
    for request in reversed(requests):
        if bare == request.request_id or requested in (request.client_id, request.trace_id):
            return request
    started = [request for request in requests if request.request_id.startswith(bare)]
    if len(started) == 1 and len(bare) >= 4:
        return started[0]
    raise UnknownRequestError(requested)


def explain(requests: Sequence[TracedRequest], request_id: str) -> Explanation:
    """Which stage made the request slow. UnknownRequestError if it is not among ``requests``."""
    request = find(requests, request_id)
    peers = _peers(requests, request)
    compared = tuple(_compare(stage, request, peers) for stage in _stages(request, peers))
    slow = _slow_stage(compared, request, peers)
    if slow is None:
        cause, reason, step = _not_slow(request, peers)
    elif len(peers) < PEERS and slow.stage.name in (StageName.PREFILL, StageName.DECODE):
        cause, reason, step = _long(slow, request)
    else:
        cause, reason, step = _reason(slow, request, requests, peers)
    return Explanation(
        request=request,
        peers=len(peers),
        stages=compared,
        slow=slow,
        cause=cause,
        reason=reason,
        next_step=step,
        notes=_notes(request),
    )


def _peers(requests: Sequence[TracedRequest], request: TracedRequest) -> tuple[TracedRequest, ...]:
    """Successful requests of the same model and of similar input and output length."""
    same = [
        other
        for other in requests
        if other.request_id != request.request_id
        and other.model == request.model
        and other.outcome == "success"
        # Aggregated and disaggregated requests have different stages.
        and (other.prefill is None) == (request.prefill is None)
    ]
    return tuple(
        other
        for other in same
        if _similar(other.input_tokens, request.input_tokens)
        and _similar(other.output_tokens, request.output_tokens)
    )


def _stages(request: TracedRequest, peers: Sequence[TracedRequest]) -> tuple[Stage, ...]:
    """The stages, with the time that the client blocked in `response`.

    A worker waits when the buffers in front of it are full. Then its decode takes longer than that
    of the peers, by at most the time that the client blocked.
    """
    stages = {stage.name: stage for stage in request.stages}
    decode, response = stages.get(StageName.DECODE), stages.get(StageName.RESPONSE)
    if decode is None or response is None or not request.client_blocked_ms or not peers:
        return request.stages
    excess = _compare(decode, request, peers).excess_ms
    moved = max(0.0, min(excess, request.client_blocked_ms - response.ms))
    stages[decode.name] = replace(decode, end_ms=decode.end_ms - moved)
    stages[response.name] = replace(response, start_ms=response.start_ms - moved)
    return tuple(stages.values())


def _similar(tokens: int, other: int) -> bool:
    low, high = sorted((max(tokens, 1), max(other, 1)))
    return high <= SIMILAR * low


def _compare(
    stage: Stage, request: TracedRequest, peers: Sequence[TracedRequest]
) -> StageComparison:
    usual = [peer.stage_ms(stage.name) * _scale(stage.name, request, peer) for peer in peers]
    return StageComparison(stage=stage, usual_ms=median(usual) if usual else 0.0)


def _scale(name: StageName, request: TracedRequest, peer: TracedRequest) -> float:
    """Decode takes as many steps as the output has tokens."""
    if name is StageName.DECODE and peer.output_tokens > 0:
        return request.output_tokens / peer.output_tokens
    return 1.0


def _slow_stage(
    compared: Sequence[StageComparison],
    request: TracedRequest,
    peers: Sequence[TracedRequest],
) -> StageComparison | None:
    if not compared:
        return None
    if len(peers) < PEERS:
        if request.outcome not in ("success", UNKNOWN_OUTCOME):
            return None
        longest = max(compared, key=lambda comparison: comparison.stage.ms)
        is_decode = longest.stage.name is StageName.DECODE
        # A worker waits for a slow client, which counts as decode.
        own_ms = longest.stage.ms - (request.client_blocked_ms or 0.0) * is_decode
        return longest if own_ms > max(SLOW_MS, MOST * request.total_ms) else None
    usual = sum(comparison.usual_ms for comparison in compared)
    worst = max(compared, key=lambda comparison: comparison.excess_ms)
    return worst if worst.excess_ms > max(SLOW_MS, SLOW_SHARE * usual) else None


def _not_slow(request: TracedRequest, peers: Sequence[TracedRequest]) -> tuple[Cause, str, str]:
    if request.outcome not in ("success", UNKNOWN_OUTCOME):
        return (
            Cause.NONE,
            f"the request ended with: {request.outcome}",
            "Read the output of `penstock logs GRAPH`.",
        )
    if len(peers) < PEERS:
        return (
            Cause.NONE,
            f"recorded requests of similar length: {len(peers)}; {PEERS} are needed "
            "to tell which stage is slow",
            f"Send at least {PEERS - len(peers)} more requests of similar length.",
        )
    return Cause.NONE, "no stage is slower than usual for requests of this length", ""


def _long(slow: StageComparison, request: TracedRequest) -> tuple[Cause, str, str]:
    """The cause for a request without peers, from its own tokens."""
    if slow.stage.name is StageName.DECODE:
        tokens, seconds = request.output_tokens, slow.stage.ms / 1000
        return (
            Cause.LONG_OUTPUT,
            f"the worker decoded {tokens:,} tokens in {seconds:,.1f} s",
            "Limit the output with `max_tokens`. If the time per token is too long, add decode "
            "workers.",
        )
    most = "at most " if request.cached_tokens is None else ""
    return (
        Cause.LONG_PROMPT,
        f"the worker computed {most}{computed_tokens(request):,} uncached tokens of a prompt of "
        f"{request.input_tokens:,}; a wait in the worker's queue is a part of this time",
        "Keep the beginning of prompts equal, so that it is cached, or add prefill workers.",
    )


def _reason(
    slow: StageComparison,
    request: TracedRequest,
    requests: Sequence[TracedRequest],
    peers: Sequence[TracedRequest],
) -> tuple[Cause, str, str]:
    name = slow.stage.name
    if name is StageName.PREFILL:
        return _prefill_reason(request, requests, peers)
    if name is StageName.DECODE:
        return _decode_reason(request, requests, peers)
    if name is StageName.KV_TRANSFER:
        return (
            Cause.KV_TRANSFER,
            "the time from the end of prefill to the first token of the decode worker is the KV "
            "transfer and the wait for the decode worker's first step, which is long if the worker "
            "has no free KV blocks",
            "Run `penstock check`: it reports transports without RDMA. Compare the load and the KV "
            "use of the decode workers in `penstock status`.",
        )
    if name in (StageName.PREFILL_ROUTING, StageName.ROUTING):
        depth = request.queue_depth
        queued = f"; {depth} requests were in the router's queue" if depth else ""
        return (
            Cause.ROUTER_QUEUE,
            f"the request waited between the frontend and its worker{queued}",
            "Raise `router.queue_threshold`, or add workers.",
        )
    if name is StageName.RESPONSE:
        return _response_reason(slow, request)
    return (
        Cause.FRONTEND,
        "the chat template, the tokenizer or a busy frontend delayed the request",
        ADD_FRONTEND,
    )


def _response_reason(slow: StageComparison, request: TracedRequest) -> tuple[Cause, str, str]:
    blocked = request.client_blocked_ms
    if blocked is not None and blocked < slow.excess_ms / 2:
        return (
            Cause.FRONTEND,
            "a busy frontend delayed the end of the response; the client blocked it for only "
            f"{blocked:,.0f} ms",
            ADD_FRONTEND,
        )
    known = f" for {blocked:,.0f} ms" if blocked is not None else ""
    return (
        Cause.SLOW_CLIENT,
        f"the frontend waited{known} for the client to read the response",
        "Read the stream without pauses in the client, and check its network.",
    )


def _prefill_reason(
    request: TracedRequest, requests: Sequence[TracedRequest], peers: Sequence[TracedRequest]
) -> tuple[Cause, str, str]:
    """The larger of two surpluses of tokens, those ahead in the queue and those that the cache did
    not have, is the cause; without a surplus, it is the worker."""
    visit = request.prefill or request.decode
    if visit is None:  # a stage PREFILL implies a worker
        return Cause.NONE, "no worker is recorded", ""
    timeline = RequestTimeline(requests)
    ahead = timeline.queued_tokens(request)
    usual_ahead = median(timeline.queued_tokens(peer) for peer in peers)
    computed, usual = computed_tokens(request), median(computed_tokens(peer) for peer in peers)
    queued, uncached = ahead - usual_ahead, computed - usual
    least = 0.3 * usual + 32  # differences between usual requests, and an incomplete block
    if queued > max(least, uncached):
        return (
            Cause.QUEUE,
            f"worker {visit.worker} still had about {ahead:,.0f} tokens of earlier prompts to "
            f"compute (median of the peers: {usual_ahead:,.0f})",
            "Add prefill capacity: raise the pool's `replicas`, or limit the arrival rate.",
        )
    if request.cached_tokens is not None and uncached > least:
        return (
            Cause.COLD_PREFIX,
            f"the worker computed {computed:,} tokens of the prompt and had {request.cached_tokens}"
            f" cached (peers computed {usual:,.0f})",
            "Keep the beginning of prompts equal, or raise `router.overlap_score_credit`.",
        )
    # Neither tokens ahead nor uncached tokens explain the time, so it is the worker.
    late_ms = (visit.start_ns - visit.sent_ns) / 1e6
    if late_ms > SLOW_MS:
        return (
            Cause.SLOW_WORKER,
            f"worker {visit.worker} accepted the request only {late_ms:,.0f} ms after the frontend "
            "sent it",
            "Compare the worker with the others: its CPU load, and the network to it.",
        )
    elsewhere = [p for p in peers if (v := p.prefill or p.decode) and v.worker != visit.worker]
    there = f"; {len(elsewhere)} peers ran on other workers" if elsewhere else ""
    return (
        Cause.SLOW_WORKER,
        f"worker {visit.worker} computed {computed:,} tokens, as many as usual, in more time "
        f"and without a queue{there}",
        COMPARE_WORKERS,
    )


def _decode_reason(
    request: TracedRequest, requests: Sequence[TracedRequest], peers: Sequence[TracedRequest]
) -> tuple[Cause, str, str]:
    visit = request.decode
    if visit is None:
        return Cause.NONE, "no worker is recorded", ""
    timeline = RequestTimeline(requests)
    tokens = timeline.concurrent_tokens(visit)
    usual = median(timeline.concurrent_tokens(peer.decode) for peer in peers if peer.decode)
    if tokens > 1.3 * usual:
        return (
            Cause.DECODE_CONTENTION,
            f"worker {visit.worker} decoded requests with {tokens:,} tokens of KV cache at the "
            f"same time (median of the peers: {usual:,.0f}): larger steps, or preemption if this "
            "exceeds its KV cache",
            "Compare with the KV cache of a worker (`penstock check` prints it), and add decode "
            "workers or lower `max_num_seqs`.",
        )
    reason = (
        f"worker {visit.worker} decoded no more KV cache than usual, but took more time per token"
    )
    step = COMPARE_WORKERS
    if request.client_blocked_ms is None:
        reason += (
            "; a client that reads slowly has the same effect if the response exceeds the buffers "
            "between worker and client"
        )
        step = f"Check that the client reads the stream without pauses. {step}"
    return Cause.SLOW_WORKER, reason, step


def _notes(request: TracedRequest) -> tuple[str, ...]:
    notes = []
    if request.clock_skew_ms:
        notes.append(
            f"The clocks of frontend and worker differ by at least {request.clock_skew_ms:.1f} ms; "
            "stage times are limited to those that the frontend measured."
        )
    if request.retries:
        notes.append(f"The frontend retried the request (migration); retries: {request.retries}.")
    if request.cached_tokens is None:
        notes.append(
            "Dynamo's request trace has no record of this request, so its cached tokens and KV "
            "transfer time are unknown."
        )
    return tuple(notes)
