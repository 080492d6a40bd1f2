"""What `penstock trace` prints: the list of requests, one explanation, and both as JSON.

The live page places the same texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from penstock.tracing.explain import PEERS, Explanation, StageComparison
from penstock.tracing.requests import TracedRequest, Visit

ON_MOCKERS = "no engine ran: mockers simulated the times of prefill and decode"
BAR = 32  # columns of the bar of times
LIST_HEADINGS = ("request", "at (UTC)", "total", "TTFT", "input", "cached", "output", "client ID")
REQUEST_KEYS = (
    *("request_id", "client_id", "trace_id", "total_ms", "ttft_ms", "itl_ms", "model"),
    *("engine_is_substitute", "input_tokens", "cached_tokens", "output_tokens", "outcome"),
    *("retries", "client_blocked_ms"),
)
EXPLANATION_KEYS = ("peers", "cause", "reason", "next_step", "notes")
LIST_NUMBERS = ("total", "TTFT", "input", "cached", "output")


def listed(
    requests: Sequence[TracedRequest], count: int, *, slowest: bool
) -> Sequence[TracedRequest]:
    """The newest requests, or the slowest ones; at most ``count``."""
    ordered = sorted(requests, key=lambda r: r.total_ms if slowest else r.start_ns)
    return ordered[::-1][:count]


def on_mockers(requests: Iterable[TracedRequest]) -> list[str]:
    """A line of caution if a mocker served one of the requests."""
    return [ON_MOCKERS] if any(request.engine_is_substitute for request in requests) else []


def list_rows(requests: Sequence[TracedRequest]) -> list[list[str]]:
    """One row for each request, in the columns of `LIST_HEADINGS`."""
    return [
        [
            request.request_id,
            _at(request),
            milliseconds(request.total_ms),
            "-" if request.ttft_ms is None else milliseconds(request.ttft_ms),
            str(request.input_tokens),
            "-" if request.cached_tokens is None else str(request.cached_tokens),
            str(request.output_tokens),
            request.client_id or "-",
        ]
        for request in requests
    ]


def explanation_lines(explanation: Explanation) -> list[str]:
    """The path of the request, the bar of its stages, and the slow stage with its reason."""
    (first, *steps) = [", ".join(filter(None, step)) for step in path_steps(explanation.request)]
    return [
        *summary_lines(explanation.request),
        first,
        *(f"→ {step}" for step in steps),
        "",
        *_bars(explanation),
        "",
        *(f"{label}: {text}" for label, text in verdict(explanation)),
        *(f"note: {note}" for note in explanation.notes),
    ]


def summary_lines(request: TracedRequest) -> list[str]:
    """Which request it is, its client's ID, and its tokens and latencies."""
    return [
        f"request {request.request_id} at {_at(request)} UTC: {request.outcome}, "
        f"{milliseconds(request.total_ms)}",
        *on_mockers([request]),
        *([f"client ID {request.client_id}"] if request.client_id else []),
        f"input {request.input_tokens} tokens{_cached(request)}, output {request.output_tokens} "
        f"tokens{_latencies(request)}",
    ]


def _cached(request: TracedRequest) -> str:
    return "" if request.cached_tokens is None else f" ({request.cached_tokens} cached)"


def _latencies(request: TracedRequest) -> str:
    parts = []
    if request.ttft_ms is not None:
        parts.append(f"TTFT {milliseconds(request.ttft_ms)}")
    if request.itl_ms is not None:
        parts.append(f"ITL {milliseconds(request.itl_ms)}")
    return f", {', '.join(parts)}" if parts else ""


def path_steps(
    request: TracedRequest, names: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """The processes in the order of the request, each with why the router selected it.

    ``names``: of workers that are known by more than their service, by ID.
    """
    steps = [("frontend", "")]
    if request.prefill is not None:
        steps.append((f"prefill worker {_worker(request.prefill, names)}", _why(request.prefill)))
    if request.decode is not None:
        kind = "decode worker" if request.prefill is not None else "worker"
        steps.append((f"{kind} {_worker(request.decode, names)}", _why(request.decode)))
    return [*steps, ("client", "")]


def _worker(visit: Visit, names: Mapping[str, str] | None) -> str:
    name = (names or {}).get(visit.worker, visit.service)
    return f"{visit.worker} ({name})" if name else visit.worker


def _why(visit: Visit) -> str:
    if visit.overlap_blocks is None:
        return ""
    if visit.overlap_blocks:
        return f"selected with {visit.overlap_blocks} cached KV blocks of the prompt"
    return "selected by load: no cached KV blocks counted"


def _bars(explanation: Explanation) -> list[str]:
    total = max(explanation.request.total_ms, 0.001)
    has_peers = explanation.peers >= PEERS
    lines = []
    for compared in explanation.stages:
        stage = compared.stage
        start = round(stage.start_ms / total * BAR)
        end = max(round(stage.end_ms / total * BAR), start)
        bar = " " * start + "█" * (end - start)
        mark = f" ← {'slow' if has_peers else 'longest'}" if compared is explanation.slow else ""
        usual = f"  usual {milliseconds(compared.usual_ms):>9}" if has_peers else ""
        lines.append(f"{stage.name:<15} {milliseconds(stage.ms):>9}{usual}  |{bar:<{BAR}}|{mark}")
    return lines


def verdict(explanation: Explanation) -> list[tuple[str, str]]:
    """The slow stage, its cause, the reason and the next step, each with its label."""
    slow = explanation.slow
    if slow is None:
        lines = [("no slow stage", explanation.reason)]
    else:
        lines = [
            _slow_stage(slow, explanation),
            ("cause", str(explanation.cause)),
            ("why", explanation.reason),
        ]
    return [*lines, *([("fix", explanation.next_step)] if explanation.next_step else [])]


def _slow_stage(slow: StageComparison, explanation: Explanation) -> tuple[str, str]:
    """With its label."""
    name, took = slow.stage.name, milliseconds(slow.stage.ms)
    if explanation.peers < PEERS:
        share = slow.stage.ms / explanation.request.total_ms
        total = milliseconds(explanation.request.total_ms)
        return "longest stage", f"{name} took {took} of {total} ({share:.0%})"
    return (
        "slow stage",
        f"{name} took {milliseconds(slow.excess_ms)} more than usual "
        f"(median of {explanation.peers} requests of similar length)",
    )


def _at(request: TracedRequest) -> str:
    return datetime.fromtimestamp(request.start_ns / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]


def milliseconds(ms: float) -> str:
    """In ms, or in s from 1000 ms."""
    return f"{ms:.1f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"


def request_document(request: TracedRequest) -> dict[str, Any]:
    """A request as JSON; times in ms, `start` in seconds since the epoch."""
    return {
        "start": request.start_ns / 1e9,
        **{name: getattr(request, name) for name in REQUEST_KEYS},
        "prefill_worker": _visit_document(request.prefill),
        "worker": _visit_document(request.decode),
    }


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """An explanation as JSON."""
    slow = explanation.slow
    return {
        "request": request_document(explanation.request),
        "engine_is_substitute": explanation.request.engine_is_substitute,
        "stages": [
            {**asdict(compared.stage), "usual_ms": compared.usual_ms}
            for compared in explanation.stages
        ],
        "slow_stage": slow and slow.stage.name,
        **{name: getattr(explanation, name) for name in EXPLANATION_KEYS},
    }


def _visit_document(visit: Visit | None) -> dict[str, Any] | None:
    if visit is None:
        return None
    return {
        "id": visit.worker,
        "service": visit.service,
        "overlap_blocks": visit.overlap_blocks,
    }
