"""Reads what AIPerf recorded of each request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.bench.aiperf import Endpoint, Traffic
from penstock.bench.trace_file import Key
from penstock.simulate.window import ServedRequest
from penstock.workload import Request

NS_PER_MS = 1e6
CANCELLED = "cancelled"
REASONS = {  # by the class of the error in AIPerf's HTTP client
    "ClientConnectorError": "no connection",
    "ServerDisconnectedError": "the connection was closed before the response",
    "ClientOSError": "the connection was closed before the response",
    "ClientPayloadError": "the connection was closed during the response",
    "InvalidInferenceResultError": "the response has no output in the form of the requested API",
    "TimeoutError": "no complete response within --request-timeout",
}


@dataclass(frozen=True, kw_only=True)
class FailedRequest:
    key: Key
    sent_ms: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Records:
    """The requests of a run. Times are milliseconds since its start."""

    start_ms: float
    """When the trace began, or without times of arrival the first request, as Unix time in ms."""
    served: Mapping[Key, ServedRequest]
    """With all requested tokens, in order of arrival."""
    failed: tuple[FailedRequest, ...]
    unsent: int
    """Requests without a record: the run was interrupted, or their conversation failed."""
    late_ms: tuple[float, ...]
    """How late each request was sent; empty for a fixed concurrency."""
    chunk_gaps_ms: tuple[float, ...]
    """Between two consecutive chunks of a stream, over all served requests."""
    requested_tokens: int
    """Input tokens of the served requests, in the workload; the server counts its own."""


def read_records(traffic: Traffic) -> Records:
    """The records of the requests of ``traffic``; none if there is no file, because the run was
    interrupted before the first response. A last line that is incomplete is left out. Times are
    those of the simulation, if its speed is not 1."""
    requests, endpoint = traffic.requests, traffic.endpoint
    by_key = {_key(record): record for record in _lines(traffic.records)}
    by_key = {key: by_key[key] for key in requests if key in by_key}
    sent_ns = {key: int(each["metadata"]["request_start_ns"]) for key, each in by_key.items()}
    first_ns = min(sent_ns.values(), default=0)
    sent = {key: (at - first_ns) / NS_PER_MS * endpoint.speed for key, at in sent_ns.items()}
    # The request that was sent earliest, compared with its time in the trace, was in time.
    offsets = [
        at - due
        for key, at in sent.items()
        if traffic.concurrency is None and (due := requests[key].at_ms) is not None
    ]
    start = min(offsets, default=0.0)
    served, failed, gaps = {}, [], list[float]()
    for key in sorted(by_key, key=sent.__getitem__):
        record, sent_ms = by_key[key], sent[key] - start
        reason = _failure(record, requests[key])
        if reason:
            failed.append(FailedRequest(key=key, sent_ms=sent_ms, reason=reason))
        else:
            served[key] = _served(record, sent_ms, endpoint)
            gaps += (gap * endpoint.speed for gap in _value(record, "inter_chunk_latency") or ())
    return Records(
        start_ms=first_ns / NS_PER_MS + start / endpoint.speed,
        served=served,
        failed=tuple(failed),
        unsent=len(requests) - len(by_key),
        late_ms=tuple(sorted(offset - start for offset in offsets)),
        chunk_gaps_ms=tuple(gaps),
        requested_tokens=sum(requests[key].input_tokens for key in served),
    )


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    if not file.exists():
        return
    with file.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def _key(record: Mapping[str, Any]) -> Key:
    metadata = record["metadata"]
    return metadata["conversation_id"], metadata["turn_index"] or 0


def _value(record: Mapping[str, Any], name: str) -> Any:
    return (record["metrics"].get(name) or {}).get("value")


def _failure(record: Mapping[str, Any], request: Request) -> str:
    """Why the request is not served; empty if it is."""
    if record["metadata"].get("was_cancelled"):
        return CANCELLED
    error = record.get("error")
    if error:
        code, kind = error.get("code"), str(error.get("type") or "unknown error")
        return f"HTTP {code}" if code else REASONS.get(kind, kind)
    tokens = _value(record, "usage_completion_tokens")
    if tokens is None:
        return "the response ended without a count of its tokens (`usage`)"
    if tokens != request.output_tokens or _value(record, "time_to_first_token") is None:
        return "the response had no tokens, or another number of tokens than requested"
    return ""


def _served(record: Mapping[str, Any], sent_ms: float, endpoint: Endpoint) -> ServedRequest:
    ttft = endpoint.speed * float(_value(record, "time_to_first_token"))
    took = endpoint.speed * float(_value(record, "request_latency"))
    tokens = int(_value(record, "usage_completion_tokens"))
    # Completions have no reasoning that is marked as such, and no such metric.
    name = "time_to_first_output_token" if endpoint.is_chat else "time_to_first_token"
    first_output = _value(record, name)
    return ServedRequest(
        arrived_ms=sent_ms,
        first_ms=sent_ms + ttft,
        ended_ms=sent_ms + took,
        tokens=tokens,
        ttft_ms=ttft,
        # A response that came in one piece has no time between its tokens.
        itl_ms=(took - ttft) / (tokens - 1) if tokens > 1 and took > ttft else None,
        prefill_queue_ms=0.0,  # the server's queues are not visible to a client
        decode_queue_ms=None,
        input_tokens=int(_value(record, "usage_prompt_tokens") or 0),
        cached_tokens=int(_value(record, "usage_prompt_cache_read_tokens") or 0),
        first_output_ms=None if first_output is None else endpoint.speed * first_output,
    )
