"""Reads what AIPerf recorded of each request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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

    def simulated(self, speed: float) -> Records:
        """With the times of a simulation that ran at ``speed``."""
        if speed == 1.0:
            return self
        return replace(
            self,
            served={key: _simulated(each, speed) for key, each in self.served.items()},
            failed=tuple(
                replace(failure, sent_ms=failure.sent_ms * speed) for failure in self.failed
            ),
            late_ms=tuple(late * speed for late in self.late_ms),
            chunk_gaps_ms=tuple(gap * speed for gap in self.chunk_gaps_ms),
        )


def read_records(
    file: Path, requests: Mapping[Key, Request], *, is_scheduled: bool, is_chat: bool = False
) -> Records:
    """The records of ``requests``, of the chat API or of completions; none if there is no file,
    because the run was interrupted before the first response. A last line that is incomplete is
    left out."""
    by_key = {_key(record): record for record in _lines(file)}
    by_key = {key: by_key[key] for key in requests if key in by_key}
    sent = {key: _sent_ms(record) for key, record in by_key.items()}
    # The request that was sent earliest, compared with its time in the trace, was in time.
    offsets = [
        at - due
        for key, at in sent.items()
        if is_scheduled and (due := requests[key].at_ms) is not None
    ]
    start = min(offsets or sent.values(), default=0.0)
    served, failed, gaps = {}, [], list[float]()
    for key in sorted(by_key, key=sent.__getitem__):
        record, sent_ms = by_key[key], sent[key] - start
        reason = _failure(record, requests[key])
        if reason:
            failed.append(FailedRequest(key=key, sent_ms=sent_ms, reason=reason))
        else:
            served[key] = _served(record, sent_ms, is_chat=is_chat)
            gaps += _value(record, "inter_chunk_latency") or ()
    return Records(
        start_ms=start,
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


def _sent_ms(record: Mapping[str, Any]) -> float:
    return float(record["metadata"]["request_start_ns"]) / NS_PER_MS


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


def _simulated(request: ServedRequest, speed: float) -> ServedRequest:
    return replace(
        request,
        arrived_ms=request.arrived_ms * speed,
        first_ms=request.first_ms * speed,
        ended_ms=request.ended_ms * speed,
        ttft_ms=request.ttft_ms * speed,
        itl_ms=None if request.itl_ms is None else request.itl_ms * speed,
        first_output_ms=None
        if request.first_output_ms is None
        else request.first_output_ms * speed,
    )


def _served(record: Mapping[str, Any], sent_ms: float, *, is_chat: bool) -> ServedRequest:
    ttft = float(_value(record, "time_to_first_token"))
    took = float(_value(record, "request_latency"))
    tokens = int(_value(record, "usage_completion_tokens"))
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
        # Completions have no reasoning that is marked as such, and no such metric.
        first_output_ms=_value(record, "time_to_first_output_token") if is_chat else ttft,
    )
