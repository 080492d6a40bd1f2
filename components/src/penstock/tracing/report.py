"""What `penstock trace` prints: the list of requests, one explanation, and both as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.tracing.explain import PEERS, Explanation, StageComparison
from penstock.tracing.requests import TracedRequest, Visit

BAR = 32  # columns of the bar of times
LIST_HEADINGS = ("request", "at (UTC)", "total", "TTFT", "input", "cached", "output", "client ID")


def list_rows(requests: Sequence[TracedRequest]) -> list[list[str]]:
    """One row for each request, in the columns of `LIST_HEADINGS`."""
    return [
        [
            request.request_id,
            _at(request),
            _ms(request.total_ms),
            "-" if request.ttft_ms is None else _ms(request.ttft_ms),
            str(request.input_tokens),
            "-" if request.cached_tokens is None else str(request.cached_tokens),
            str(request.output_tokens),
            request.client_id or "-",
        ]
        for request in requests
    ]


def explanation_lines(explanation: Explanation) -> list[str]:
    """The path of the request, the bar of its stages, and the slow stage with its reason."""
    request = explanation.request
    return [
        f"request {request.request_id} at {_at(request)} UTC: {request.outcome}, "
        f"{_ms(request.total_ms)}",
        *([f"client ID {request.client_id}"] if request.client_id else []),
        f"input {request.input_tokens} tokens{_cached(request)}, output {request.output_tokens} "
        f"tokens{_latencies(request)}",
        *_path(request),
        "",
        *_bars(explanation),
        "",
        *_verdict(explanation),
        *(f"note: {note}" for note in explanation.notes),
    ]


def _cached(request: TracedRequest) -> str:
    return "" if request.cached_tokens is None else f" ({request.cached_tokens} cached)"


def _latencies(request: TracedRequest) -> str:
    parts = []
    if request.ttft_ms is not None:
        parts.append(f"TTFT {_ms(request.ttft_ms)}")
    if request.itl_ms is not None:
        parts.append(f"ITL {_ms(request.itl_ms)}")
    return f", {', '.join(parts)}" if parts else ""


def _path(request: TracedRequest) -> list[str]:
    lines = ["frontend"]
    if request.prefill is not None:
        lines.append(f"→ prefill worker {_worker(request.prefill)}")
    if request.decode is not None:
        kind = "decode worker" if request.prefill is not None else "worker"
        lines.append(f"→ {kind} {_worker(request.decode)}")
    return [*lines, "→ client"]


def _worker(visit: Visit) -> str:
    name = f"{visit.worker} ({visit.service})" if visit.service else visit.worker
    if visit.overlap_blocks is None:
        return name
    if visit.overlap_blocks:
        return f"{name}, selected with {visit.overlap_blocks} cached KV blocks of the prompt"
    return f"{name}, selected by load: no cached KV blocks counted"


def _bars(explanation: Explanation) -> list[str]:
    total = max(explanation.request.total_ms, 0.001)
    has_peers = explanation.peers >= PEERS
    lines = []
    for compared in explanation.stages:
        stage = compared.stage
        start = round(stage.start_ms / total * BAR)
        end = max(round(stage.end_ms / total * BAR), start)
        bar = " " * start + "█" * (end - start)
        mark = " ← slow" if compared is explanation.slow else ""
        usual = f"  usual {_ms(compared.usual_ms):>9}" if has_peers else ""
        lines.append(f"{stage.name:<15} {_ms(stage.ms):>9}{usual}  |{bar:<{BAR}}|{mark}")
    return lines


def _verdict(explanation: Explanation) -> list[str]:
    slow = explanation.slow
    if slow is None:
        lines = [f"no slow stage: {explanation.reason}"]
    else:
        lines = [
            f"slow stage: {slow.stage.name} took {_ms(slow.excess_ms)} more than usual "
            f"(median of {explanation.peers} requests of similar length)",
            f"cause: {explanation.cause}",
            f"why: {explanation.reason}",
        ]
    return [*lines, *([f"fix: {explanation.next_step}"] if explanation.next_step else [])]


def _at(request: TracedRequest) -> str:
    return datetime.fromtimestamp(request.start_ns / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]


def _ms(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"


def request_document(request: TracedRequest) -> dict[str, Any]:
    """A request as JSON; times in ms, `start` in seconds since the epoch."""
    return {
        "request_id": request.request_id,
        "client_id": request.client_id,
        "trace_id": request.trace_id,
        "start": request.start_ns / 1e9,
        "total_ms": request.total_ms,
        "ttft_ms": request.ttft_ms,
        "itl_ms": request.itl_ms,
        "model": request.model,
        "input_tokens": request.input_tokens,
        "cached_tokens": request.cached_tokens,
        "output_tokens": request.output_tokens,
        "outcome": request.outcome,
        "retries": request.retries,
        "prefill_worker": _visit_document(request.prefill),
        "worker": _visit_document(request.decode),
    }


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON."""
    slow = explanation.slow
    return {
        "request": request_document(explanation.request),
        "peers": explanation.peers,
        "stages": [_stage_document(compared) for compared in explanation.stages],
        "slow_stage": None if slow is None else str(slow.stage.name),
        "cause": str(explanation.cause),
        "reason": explanation.reason,
        "next_step": explanation.next_step,
        "notes": list(explanation.notes),
    }


def _stage_document(compared: StageComparison) -> dict[str, Any]:
    stage = compared.stage
    return {
        "name": str(stage.name),
        "start_ms": stage.start_ms,
        "end_ms": stage.end_ms,
        "usual_ms": compared.usual_ms,
    }


def _visit_document(visit: Visit | None) -> dict[str, Any] | None:
    if visit is None:
        return None
    return {
        "id": visit.worker,
        "service": visit.service,
        "overlap_blocks": visit.overlap_blocks,
    }
