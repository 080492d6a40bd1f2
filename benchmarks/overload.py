"""TTFT of accepted requests, and the time to rejection, at three times the capacity of a graph.

    python benchmarks/overload.py [--variant mocker|cpu] [--peak-s N]

First measures the capacity with as many clients as the `request_limit` of the pool. Then requests
arrive at random times (Poisson), without retries: at half the capacity, at three times, at half
again.
Writes results/overload-<variant>.json and a plot of it, results/overload-<variant>.svg.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.simulate.window import percentile
from report import RESULTS, write_result

CALM_S = 30.0
WINDOW_S = 5
CALM, PEAK = 0.5, 3.0  # of the capacity
LONGEST_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A graph with limits. ``concurrency``: clients while the capacity is measured."""

    graph: str
    sets: tuple[str, ...]
    concurrency: int
    tokens: int
    edits: Mapping[str, str] = field(default_factory=dict)


VARIANTS = {
    "mocker": Variant(
        graph="quickstart-simulated",
        # Slower than in the file, so that the client and the frontend have CPU time left.
        edits={"speedup_ratio: 2.0": "speedup_ratio: 0.5"},
        sets=("decode.request_limit=8", "decode.queue_limit=2", "prefill.request_limit=8"),
        concurrency=8,
        tokens=100,
    ),
    "cpu": Variant(
        graph="cpu-aggregated",
        sets=("worker.request_limit=4", "worker.queue_limit=2"),
        concurrency=4,
        tokens=40,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """Seconds since the start. ``status`` 0: no response."""

    sent_s: float
    status: int
    first_s: float
    """The first token, or the refusal."""
    ended_s: float

    @property
    def wait_s(self) -> float:
        return self.first_s - self.sent_s


def main() -> int:
    parser = argparse.ArgumentParser(description="measure a graph at three times its capacity")
    parser.add_argument("--variant", choices=VARIANTS, default="mocker")
    parser.add_argument("--peak-s", type=float, default=300.0)
    options = parser.parse_args()
    variant = VARIANTS[options.variant]
    with tempfile.TemporaryDirectory(prefix="penstock-overload-") as name:
        folder = Path(name)
        arguments = ["--port", "0", *(part for s in variant.sets for part in ("--set", s))]
        with GraphProcess(_graph(variant, folder), folder, arguments) as process:
            process.wait_ready(300)
            state = process.state()
            load = Load(state["endpoint"], state["models"][0], variant)
            asyncio.run(load.run(options.peak_s))
            process.stop()
    result = figures(load, options.peak_s)
    write_result(
        f"overload-{options.variant}",
        f"python benchmarks/overload.py --variant {options.variant}",
        result,
    )
    (RESULTS / f"overload-{options.variant}.svg").write_text(plot(load.requests), "utf-8")
    return 0


def _graph(variant: Variant, folder: Path) -> Path:
    path = copy_graph(variant.graph, folder)
    text = path.read_text("utf-8")
    for old, new in variant.edits.items():
        text = text.replace(old, new)
    path.write_text(text, "utf-8")
    return path


class Load:
    """The clients. ``capacity``: requests/s."""

    def __init__(self, url: str, model: str, variant: Variant) -> None:
        self._url, self._model, self._variant = url, model, variant
        self._random = random.Random(1)
        self.requests: list[Request] = []
        self.capacity = 0.0
        self._began = 0.0

    async def run(self, peak_s: float) -> None:
        limits = httpx.Limits(max_connections=2000, max_keepalive_connections=200)
        async with httpx.AsyncClient(timeout=LONGEST_S, limits=limits, trust_env=False) as client:
            self.capacity = await self._measure_capacity(client)
            self._began = time.monotonic()
            running: set[asyncio.Task[None]] = set()
            for load, seconds in ((CALM, CALM_S), (PEAK, peak_s), (CALM, CALM_S)):
                end = time.monotonic() + seconds
                due = time.monotonic()
                while (due := due + self._random.expovariate(load * self.capacity)) < end:
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    task = asyncio.create_task(self._send(client))
                    running.add(task)
                    task.add_done_callback(running.discard)
            await asyncio.gather(*running)

    async def _measure_capacity(self, client: httpx.AsyncClient) -> float:
        began, end = time.monotonic(), time.monotonic() + CALM_S

        async def repeat() -> int:
            count = 0
            while time.monotonic() < end:
                await self._send(client)
                count += 1
            return count

        counts = await asyncio.gather(*(repeat() for _ in range(self._variant.concurrency)))
        self.requests.clear()
        return sum(counts) / (time.monotonic() - began)

    async def _send(self, client: httpx.AsyncClient) -> None:
        sent = time.monotonic() - self._began
        status, first = 0, None
        number = self._random.random()
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": f"{number} " + "How much water flows? " * 20}],
            "max_tokens": self._variant.tokens,
            "ignore_eos": True,
            "stream": True,
        }
        try:
            async with client.stream(
                "POST", f"{self._url}/chat/completions", json=body
            ) as response:
                status = response.status_code
                async for _ in response.aiter_lines():
                    first = first or time.monotonic() - self._began
        except httpx.HTTPError:
            status = 0
        ended = time.monotonic() - self._began
        self.requests.append(
            Request(sent_s=sent, status=status, first_s=first or ended, ended_s=ended)
        )


def figures(load: Load, peak_s: float) -> dict[str, Any]:
    bounds = {
        "before": (0.0, CALM_S),
        "peak": (CALM_S, CALM_S + peak_s),
        "after": (CALM_S + peak_s, CALM_S + peak_s + CALM_S),
    }
    phases = {
        name: _phase([r for r in load.requests if begin <= r.sent_s < end])
        for name, (begin, end) in bounds.items()
    }
    after = [r for r in load.requests if r.sent_s >= CALM_S + peak_s]
    limit = phases["before"]["ttft_s_p99"] or 0.0
    return {
        "capacity_requests_per_s": round(load.capacity, 2),
        "peak_s": peak_s,
        "phases": phases,
        "recovery_s_after_peak": _recovery_s(after, CALM_S + peak_s, limit),
    }


def _recovery_s(requests: Sequence[Request], peak_end_s: float, ttft_s: float) -> float | None:
    """Until 5 s begin without a refusal, and with a median TTFT of at most ``ttft_s``."""
    for begin in range(int(CALM_S) - WINDOW_S):
        window = [r for r in requests if 0 <= r.sent_s - peak_end_s - begin < WINDOW_S]
        waits = [r.wait_s for r in window]
        if all(r.status == 200 for r in window) and waits and median(waits) <= ttft_s:
            return begin
    return None


def _phase(requests: Sequence[Request]) -> dict[str, Any]:
    accepted = [r for r in requests if r.status == 200]
    refused = [r for r in requests if r.status in (429, 503)]
    return {
        "requests": len(requests),
        "accepted": len(accepted),
        "refused": len(refused),
        "failed": len(requests) - len(accepted) - len(refused),
        "ttft_s_median": _of_waits(median, accepted),
        "ttft_s_p99": _of_waits(_p99, accepted),
        "refusal_s_median": _of_waits(median, refused),
        "refusal_s_p99": _of_waits(_p99, refused),
    }


def _p99(seconds: Sequence[float]) -> float:
    return percentile(seconds, 0.99)


def _of_waits(
    quantile: Callable[[Sequence[float]], float], requests: Sequence[Request]
) -> float | None:
    waits = [r.wait_s for r in requests]
    return round(quantile(waits), 3) if waits else None


def plot(requests: Sequence[Request]) -> str:
    """Accepted and refused requests per second, and the TTFT p99 of the accepted ones."""
    width, height, margin = 900, 160, 30
    end = max(r.sent_s for r in requests)
    step = max(1.0, end / 300)
    rows: list[list[Request]] = [[] for _ in range(int(end / step) + 1)]
    for request in requests:
        rows[int(request.sent_s / step)].append(request)
    accepted = [sum(r.status == 200 for r in row) / step for row in rows]
    refused = [sum(r.status in (429, 503) for r in row) / step for row in rows]
    ttft = [_of_waits(_p99, [r for r in row if r.status == 200]) or 0.0 for row in rows]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{2 * height}">']
    top = 0
    for title, series in (
        ("requests/s: accepted (blue), refused (red)", {"#27c": accepted, "#c32": refused}),
        ("TTFT p99 of the accepted (s)", {"#27c": ttft}),
    ):
        most = max(max(values) for values in series.values()) or 1.0
        parts.append(f'<text x="{margin}" y="{top + 15}" font-size="12">{title}, ')
        parts.append(f"at most {most:.2f}; {end:.0f} s</text>")
        for color, values in series.items():
            points = " ".join(
                f"{margin + (width - 2 * margin) * i / len(values):.1f},"
                f"{top + height - 10 - (height - 40) * value / most:.1f}"
                for i, value in enumerate(values)
            )
            parts.append(f'<polyline fill="none" stroke="{color}" points="{points}"/>')
        top += height
    return "".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    sys.exit(main())
