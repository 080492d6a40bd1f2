"""What the page gets of a snapshot: texts that it only has to place, and what has changed. Pure.

The page formats nothing, so it shows the same figures as `penstock top`.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.live.model import Edge, LiveSnapshot
from penstock.live.text import (
    COLUMNS,
    byte_rate,
    count,
    milliseconds,
    number,
    percent,
    state,
    title_line,
)
from penstock.manifests.deployment import Role

View = dict[str, Any]


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
        "edges": [[e.source, e.target, _label(e), e.is_kv_transfer] for e in latest.edges],
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


def _label(edge: Edge) -> str:
    if edge.is_kv_transfer:
        return f"KV {byte_rate(edge.byte_rate)}"
    return f"{number(edge.request_rate)} req/s"
