"""Served requests, and records as AIPerf writes them, with the fields that penstock reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.bench.aiperf import RECORDS, Endpoint, Traffic
from penstock.bench.trace_file import Key
from penstock.simulate.window import ServedRequest
from penstock.workload import Request

START_NS = 1_795_718_778_000_000_000


def request(at_ms: float | None, output_tokens: int = 11, **more: Any) -> Request:
    return Request(
        at_ms=at_ms, input_tokens=100, output_tokens=output_tokens, blocks=(1, 2), **more
    )


def served(
    ttft_ms: float,
    e2e_ms: float,
    tokens: int,
    *,
    at_ms: float = 0.0,
    input_tokens: int = 100,
    cached_tokens: int = 0,
) -> ServedRequest:
    has_itl = tokens > 1 and e2e_ms > ttft_ms
    return ServedRequest(
        arrived_ms=at_ms,
        first_ms=at_ms + ttft_ms,
        ended_ms=at_ms + e2e_ms,
        tokens=tokens,
        ttft_ms=ttft_ms,
        itl_ms=(e2e_ms - ttft_ms) / (tokens - 1) if has_itl else None,
        prefill_queue_ms=0.0,
        decode_queue_ms=None,
        input_tokens=input_tokens,
        cached_tokens=cached_tokens,
    )


def record(
    key: Key,
    sent_ms: float,
    *,
    ttft_ms: float | None = 20.0,
    e2e_ms: float = 120.0,
    tokens: int | None = 11,
    gaps_ms: Iterable[float] | None = (10.0,) * 10,
    cached: int | None = None,
    error: Mapping[str, Any] | None = None,
    was_cancelled: bool = False,
) -> dict[str, Any]:
    """A metric that is None is missing."""
    values = {
        "time_to_first_token": ttft_ms,
        "request_latency": e2e_ms,
        "usage_completion_tokens": tokens,
        "usage_prompt_tokens": 100,
        "usage_prompt_cache_read_tokens": cached,
        "inter_chunk_latency": list(gaps_ms) if gaps_ms is not None else None,
    }
    conversation, turn = key
    return {
        "metadata": {
            "conversation_id": conversation,
            "turn_index": turn,
            "request_start_ns": START_NS + round(sent_ms * 1e6),
            "was_cancelled": was_cancelled,
        },
        "metrics": {k: {"value": v, "unit": "-"} for k, v in values.items() if v is not None},
        **({"error": dict(error)} if error else {}),
    }


def traffic_of(
    folder: Path,
    requests: Mapping[Key, Request],
    records: Iterable[Mapping[str, Any]],
    *,
    is_scheduled: bool = True,
    speed: float = 1.0,
) -> Traffic:
    """Requests that were sent, with their records."""
    (folder / RECORDS).write_text("".join(json.dumps(record) + "\n" for record in records))
    return Traffic(
        endpoint=Endpoint(url="http://127.0.0.1:1", model="m", speed=speed),
        requests=requests,
        concurrency=None if is_scheduled else 1,
        folder=folder,
        timeout_s=1.0,
    )
