"""What the page gets: texts that it only has to place, of a snapshot and of recorded requests.

The page formats nothing, so it shows the same figures as `penstock top` and `penstock trace`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.live.model import LiveSnapshot
from penstock.live.text import (
    COLUMNS,
    count,
    milliseconds,
    number,
    percent,
    rate_text,
    state,
    title_line,
)
from penstock.local.state import StateDir
from penstock.local.tracing import folder, require_traces, unknown_request
from penstock.manifests.deployment import Role
from penstock.tracing.explain import (
    PEERS,
    Explanation,
    StageComparison,
    UnknownRequestError,
    explain,
)
from penstock.tracing.report import (
    LIST_HEADINGS,
    LIST_NUMBERS,
    list_rows,
    listed,
    on_mockers,
    path_steps,
    summary_lines,
    verdict,
)
from penstock.tracing.report import milliseconds as trace_milliseconds
from penstock.tracing.requests import Loaded, load
from penstock.tracing.store import NAME, OLDER

View = dict[str, Any]
ROWS = 20  # of the list, as in `penstock trace`
SLOWEST = "slowest"

Reply = dict[str, Any]
RequestReader = Callable[[Mapping[str, Any], Mapping[str, str]], Reply]
"""Replies to what the browser asks; the names of workers are by Dynamo's instance ID."""


def view_of(latest: LiveSnapshot) -> View:
    """JSON values. ``rows``: the cells of each process, by name and pid."""
    totals = latest.totals
    rows = {f"{w.name} {w.pid}": [c.text(w) for c in COLUMNS] for w in latest.workers}
    return {
        "title": title_line(latest),
        "phase": latest.phase,
        "models": list(latest.models),
        "columns": [[c.title, c.is_number] for c in COLUMNS],
        "rows": rows,
        "states": {f"{w.name} {w.pid}": state(w) for w in latest.workers},
        "order": list(rows),
        "worker_ids": {w.worker_id: w.name for w in latest.workers if w.worker_id},
        "components": [[c.name, c.role, c.ready, c.desired] for c in latest.components],
        "pools": [[c.name, c.desired] for c in latest.components if c.role is not Role.FRONTEND],
        "edges": [[e.source, e.target, rate_text(e), e.is_kv_transfer] for e in latest.edges],
        "totals": [
            ["requests/s", number(totals.request_rate)],
            ["input tokens/s", number(totals.input_token_rate, 0)],
            ["output tokens/s", number(totals.output_token_rate, 0)],
            ["TTFT p50", milliseconds(totals.ttft_s)],
            ["ITL p50", milliseconds(totals.itl_s)],
            ["prefix-cache hit rate", percent(totals.prefix_hit_rate)],
            ["running", count(totals.running)],
            ["queued in the router", count(totals.router_queue)],
        ],
        "events": [
            [
                e.time_s,
                time.strftime("%H:%M:%S", time.localtime(e.time_s)),
                e.kind,
                e.subject,
                e.text,
            ]
            for e in latest.events
        ],
        "alerts": list(latest.alerts),
    }


def point_of(latest: LiveSnapshot) -> list[float | None]:
    """One point of the charts: time in ms since 1970, TTFT and ITL in ms, requests/s, tokens/s."""
    totals = latest.totals
    latencies = [None if s is None else s * 1000 for s in (totals.ttft_s, totals.itl_s)]
    return [latest.time_s * 1000, *latencies, totals.request_rate, totals.output_token_rate]


def difference(before: View, after: View) -> View:
    """The entries that have changed; of the rows, only those."""
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    if "rows" in changed:
        old = before.get("rows", {})
        changed["rows"] = {k: cells for k, cells in after["rows"].items() if old.get(k) != cells}
    return changed


class RecordedRequests:
    """The traces of a graph; read again only when the receiver has stored more."""

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._lock = threading.Lock()  # two browsers do not read the same files at once
        self._version: tuple[tuple[int, int], ...] | None = None
        self._loaded = Loaded(requests=(), unreadable=0)

    def __call__(self, asked: Mapping[str, Any], names: Mapping[str, str]) -> Reply:
        """``asked``: ``id``, or ``order`` for the list. ``problem`` of the reply says what is
        missing. OSError if the traces cannot be read."""
        try:
            require_traces(self._state)
        except PenstockError as error:
            return {"problem": _text(error), "is_traced": False}
        with self._lock:
            loaded = self._load()
        if "id" not in asked:
            return list_reply(loaded, str(asked.get("order")))
        try:
            return {"path": path_view(explain(loaded.requests, str(asked["id"])), names)}
        except UnknownRequestError:
            unknown = unknown_request(self._state, str(asked["id"]), loaded.requests)
            return {"problem": _text(unknown), "is_unknown": True}

    def _load(self) -> Loaded:
        version = self._stored()
        if version != self._version:
            # What is stored meanwhile has another version, and is read the next time.
            self._loaded, self._version = load(folder(self._state)), version
        return self._loaded

    def _stored(self) -> tuple[tuple[int, int], ...]:
        rows = []
        for name in (OLDER, NAME):
            try:
                status = (folder(self._state) / name).stat()
            except FileNotFoundError:
                continue
            rows.append((status.st_mtime_ns, status.st_size))
        return tuple(rows)


def _text(error: PenstockError) -> str:
    """Without the file, which is the page's title."""
    sentences = [f"{p.message[:1].upper()}{p.message[1:]}. {p.fix}" for p in error.problems]
    return " ".join(sentences).strip()


def list_reply(loaded: Loaded, order: str) -> Reply:
    """The newest or slowest requests, in the columns of `penstock trace`. Pure."""
    requests = listed(loaded.requests, ROWS, slowest=order == SLOWEST)
    damaged = f"; skipped {loaded.unreadable} damaged messages" if loaded.unreadable else ""
    return {
        "headings": [[heading, heading in LIST_NUMBERS] for heading in LIST_HEADINGS],
        "rows": list_rows(requests),
        "note": "; ".join(
            [
                f"{len(requests)} of {len(loaded.requests)} recorded requests{damaged}",
                *on_mockers(requests),
            ]
        ),
    }


def path_view(explanation: Explanation, names: Mapping[str, str]) -> Reply:
    """The texts of `penstock trace GRAPH ID`; bars as shares of the total time. Pure."""
    request = explanation.request
    title, *summary = summary_lines(request)
    return {
        "id": request.request_id,
        "title": title,
        "summary": summary,
        "steps": path_steps(request, names),
        "has_usual": explanation.peers >= PEERS,
        "stages": [_stage_view(compared, explanation) for compared in explanation.stages],
        "verdict": verdict(explanation),
        "notes": list(explanation.notes),
    }


def _stage_view(compared: StageComparison, explanation: Explanation) -> Reply:
    stage, total_ms = compared.stage, max(explanation.request.total_ms, 0.001)
    return {
        "name": str(stage.name),
        "time": trace_milliseconds(stage.ms),
        "usual": trace_milliseconds(compared.usual_ms),
        "start": stage.start_ms / total_ms,
        "share": stage.ms / total_ms,
        "is_slow": compared is explanation.slow,
    }
