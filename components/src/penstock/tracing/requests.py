"""Put the spans of each request together: who served it, and how long each stage took.

The spans are those of Dynamo 1.6.1, listed in docs/tracing.md; a test compares them with what
Dynamo emits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.tracing.spans import ClientRead, Decoded, Span, decode
from penstock.tracing.store import NAME, OLDER, read

REQUEST = "http-request"
SELECT = "kv_router.select_worker"
ROUTES = ("kv_router.route_request", "router.route_request")
WORK = "handle_payload"
PREFILL = "Prefill"  # phase of a route
SPAN_NAMES = {
    REQUEST: "a request in the frontend, from its headers to the end of its response",
    SELECT: "the router selects a worker; once for prefill and once for decode",
    "kv_router.compute_block_hashes": "the router hashes the blocks of the prompt",
    "kv_router.compute_seq_hashes": "the router chains the hashes of the blocks",
    "kv_router.find_matches": "the router looks up which workers have cached these blocks",
    "kv_router.schedule": "the router compares the workers; includes the wait in its queue",
    ROUTES[0]: "a request at its worker, as the frontend sees it, with router mode `kv`",
    ROUTES[1]: "a request at its worker, as the frontend sees it, with other router modes",
    WORK: "a request in its worker, from its arrival to its last token",
}
LARGEST = 1e15  # a larger number is not a valid count, nor a valid time in ms
UNKNOWN_OUTCOME = "unknown"
SKEW_MS = 1.0  # a worker's span may exceed the frontend's by the precision of two clock readings


class StageName(StrEnum):
    """The parts of a request's time; they follow each other without gaps."""

    FRONTEND = "frontend"
    PREFILL_ROUTING = "prefill routing"
    PREFILL = "prefill"
    KV_TRANSFER = "KV transfer"
    ROUTING = "routing"
    DECODE = "decode"
    RESPONSE = "response"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One part of a request's time, in ms from the start of the request."""

    name: StageName
    start_ms: float
    end_ms: float

    @property
    def ms(self) -> float:
        return self.end_ms - self.start_ms


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A request at one worker; times in ns since the epoch."""

    phase: str
    worker: str
    """Dynamo's instance ID."""
    service: str
    """Empty if the worker's span is missing."""
    overlap_blocks: int | None
    """KV blocks of the prompt that the router expected in the worker's cache; None: not known."""
    selected_ns: int
    sent_ns: int
    start_ns: int
    end_ns: int
    attempt: int
    is_at_mocker: bool
    """The worker simulates the engine."""


@dataclass(frozen=True, kw_only=True)
class TracedRequest:
    """One request with everything that was recorded about it."""

    request_id: str
    client_id: str
    """Header `x-request-id` of the request; empty if there was none."""
    trace_id: str
    start_ns: int
    end_ns: int
    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None
    """Tokens of the prompt that the prefill worker had cached; None: not recorded."""
    ttft_ms: float | None
    itl_ms: float | None
    outcome: str
    queue_depth: int | None
    """Requests in the router's queue when this one arrived."""
    prefill: Visit | None
    """None in an aggregated graph."""
    decode: Visit | None
    """The worker that generated the output; None if no worker got the request."""
    retries: int
    stages: tuple[Stage, ...]
    client_blocked_ms: float | None
    """Time in which the buffers towards the client were full; None: not measured."""
    clock_skew_ms: float
    """By how much a worker's span lies outside the frontend's; 0 if it does not."""

    @property
    def total_ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6

    @property
    def engine_is_substitute(self) -> bool:
        return any(visit.is_at_mocker for visit in (self.prefill, self.decode) if visit)

    def stage_ms(self, name: StageName) -> float:
        return sum(stage.ms for stage in self.stages if stage.name is name)


def requests_of(decoded: Decoded) -> tuple[TracedRequest, ...]:
    """The completed requests, oldest first.

    Probes and requests for other endpoints (/v1/models) reach no router and are left out, as are
    requests without an `http-request` span or without the spans of their workers.
    """
    children: dict[str, list[Span]] = defaultdict(list)
    for span in decoded.spans:
        children[span.parent_id].append(span)
    requests = []
    for span in decoded.spans:
        if span.name == REQUEST and span.attributes.get("request_id"):
            record = decoded.records.get(span.attributes["request_id"], {})
            read = decoded.client_reads.get(span.parent_id)
            request = _request(span, children, record, read)
            if request is not None:
                requests.append(request)
    return tuple(sorted(requests, key=lambda request: request.start_ns))


def _request(
    root: Span,
    children: Mapping[str, Sequence[Span]],
    record: Mapping[str, Any],
    read: ClientRead | None,
) -> TracedRequest | None:
    spans = children.get(root.span_id, ())
    visits = [_visit(span, root, spans, children) for span in spans if span.name in ROUTES]
    if not visits and "input_tokens" not in root.attributes:
        return None
    visits.sort(key=lambda visit: visit.sent_ns)
    prefill = next((v for v in reversed(visits) if v.phase == PREFILL), None)
    decode = next((v for v in reversed(visits) if v.phase != PREFILL), None)
    if _is_incomplete(root, prefill, decode):
        return None
    # The client may read the last tokens after the frontend has sent them.
    end_ns = max(root.end_ns, read.end_ns) if read is not None else root.end_ns
    attributes = root.attributes
    return TracedRequest(
        request_id=attributes["request_id"],
        client_id=attributes.get("x_request_id", ""),
        trace_id=root.trace_id,
        start_ns=root.start_ns,
        end_ns=end_ns,
        model=attributes.get("model", ""),
        input_tokens=int(_number(attributes.get("input_tokens")) or 0),
        output_tokens=int(_number(attributes.get("output_tokens")) or 0),
        cached_tokens=_integer(record.get("cached_tokens")),
        ttft_ms=_number(attributes.get("ttft_ms")),
        itl_ms=_number(attributes.get("avg_itl_ms")),
        outcome=attributes.get("request.outcome", UNKNOWN_OUTCOME),
        queue_depth=_integer(record.get("queue_depth")),
        prefill=prefill,
        decode=decode,
        retries=sum(visit.attempt > 0 for visit in visits),
        stages=_stages(root, end_ns, prefill, decode, record),
        client_blocked_ms=read.blocked_ms if read is not None else None,
        clock_skew_ms=_skew(spans, children),
    )


def _visit(
    route: Span, root: Span, siblings: Sequence[Span], children: Mapping[str, Sequence[Span]]
) -> Visit:
    selects = [s for s in siblings if s.name == SELECT and s.end_ns <= route.start_ns]
    select = max(selects, key=lambda span: span.end_ns, default=route)
    worker_span = next((s for s in children.get(route.span_id, ()) if s.name == WORK), None)
    work = worker_span or route
    overlap = route.attributes.get("overlap_blocks")
    worker = route.attributes.get("worker_id") or work.attributes.get("instance_id", "")
    return Visit(
        phase=route.attributes.get("phase") or _phase(worker, root),
        worker=worker,
        service=worker_span.service if worker_span else "",
        overlap_blocks=_integer(overlap),
        selected_ns=select.start_ns,
        sent_ns=route.start_ns,
        # Within the route's span: the clocks of the two processes may differ.
        start_ns=min(max(work.start_ns, route.start_ns), route.end_ns),
        end_ns=max(min(work.end_ns, route.end_ns), route.start_ns),
        attempt=_integer(route.attributes.get("request.attempt")) or 0,
        is_at_mocker=work.is_of_mocker,
    )


def _phase(worker: str, root: Span) -> str:
    """The phase for router modes other than `kv`, whose spans have no phase."""
    prefill = root.attributes.get("prefill_worker_id")
    return PREFILL if _has_prefill_worker(root) and worker == prefill else ""


def _is_incomplete(root: Span, prefill: Visit | None, decode: Visit | None) -> bool:
    """Whether spans were not stored: the file was rotated, or an exporter dropped them."""
    if prefill is None and _has_prefill_worker(root):
        return True
    return decode is None and bool(root.attributes.get("decode_worker_id"))


def _has_prefill_worker(root: Span) -> bool:
    prefill = root.attributes.get("prefill_worker_id", "")
    return prefill not in ("", root.attributes.get("decode_worker_id"))


def _skew(spans: Sequence[Span], children: Mapping[str, Sequence[Span]]) -> float:
    worst = 0.0
    for route in (span for span in spans if span.name in ROUTES):
        for work in children.get(route.span_id, ()):
            if work.name == WORK:
                outside = max(route.start_ns - work.start_ns, work.end_ns - route.end_ns)
                worst = max(worst, outside / 1e6)
    return worst if worst > SKEW_MS else 0.0


def _stages(
    root: Span,
    end: int,
    prefill: Visit | None,
    decode: Visit | None,
    record: Mapping[str, Any],
) -> tuple[Stage, ...]:
    """Consecutive stages until ``end`` (ns); each boundary is at or after the one before it.

    A worker's time begins when the frontend sends the request: a worker that hangs accepts it late.

    With prefill workers, `prefill_time_ms` of the record ends at the prefill worker's token, and
    `ttft_ms` of the span at the first token of the decode worker. The time between them is the KV
    transfer, with the wait for the decode worker's first step. The prefill worker's own span is no
    substitute: it ends after the transfer.
    """
    ttft = _number(root.attributes.get("ttft_ms"))
    first = prefill or decode
    marks: list[tuple[StageName, int]] = [(StageName.FRONTEND, first.selected_ns if first else end)]
    if first is not None:
        name = StageName.PREFILL_ROUTING if prefill else StageName.ROUTING
        token = root.start_ns + int(ttft * 1e6) if ttft is not None else first.end_ns
        marks.append((name, first.sent_ns))
        if prefill is not None:
            took = _number(record.get("prefill_time_ms"))
            known = prefill.sent_ns + int(took * 1e6) if took is not None else prefill.end_ns
            marks.append((StageName.PREFILL, min(known, prefill.end_ns)))
            marks.append((StageName.KV_TRANSFER, token))
        else:
            marks.append((StageName.PREFILL, token))
        if decode is not None:
            marks.append((StageName.DECODE, decode.end_ns))
        marks.append((StageName.RESPONSE, end))
    return _consecutive(root.start_ns, end, marks)


def _consecutive(start: int, end: int, marks: Sequence[tuple[StageName, int]]) -> tuple[Stage, ...]:
    stages = []
    before = start
    for name, mark in marks:
        until = min(max(mark, before), end)
        stages.append(
            Stage(name=name, start_ms=(before - start) / 1e6, end_ms=(until - start) / 1e6)
        )
        before = until
    return tuple(stages)


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None
    # The comparison is false for NaN.
    return number if number is not None and abs(number) <= LARGEST else None


def _integer(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What `load` found."""

    requests: tuple[TracedRequest, ...]
    unreadable: int
    """Messages that cannot be decoded; a damaged part of a file counts as one."""


def is_recorded(folder: Path) -> bool:
    """Whether anything was stored in ``folder``."""
    return any((folder / name).exists() for name in (NAME, OLDER))


def load(folder: Path) -> Loaded:
    """All requests in ``folder``, oldest first; none if nothing was stored."""
    decoded = decode(read(folder))
    return Loaded(requests=requests_of(decoded), unreadable=decoded.unreadable)
