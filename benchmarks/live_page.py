"""The CPU time of the live page with 80 workers at 10 updates/s, and the delay of its events.

    uv run python benchmarks/live_page.py

Every update changes the figures of all workers. Measured for the server, for the process that
sends it the snapshots, and for the renderer and the other processes of a headless Chromium, all on
this machine. With `--other FOLDER`, which has the `live/page` of another version, the two versions
are measured in alternation.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from penstock.live.model import ComponentView, Edge, LiveSnapshot, Totals, WorkerView
from penstock.live.page import serve as serve_module
from penstock.live.page.serve import PageOptions, serve
from penstock.local.events import Event, EventKind
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role
from report import write_result

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from pictures.browser import Page, browser

EVENTS = 10
SETTLE_S = 5.0  # until the page is drawn


class Synthetic:
    """A graph of half prefill and half decode workers, all of whose figures change."""

    chat_url = None

    def __init__(self, workers: int) -> None:
        self._random = random.Random(1)
        self._half = workers // 2
        self.events: tuple[Event, ...] = ()
        self.read = 0

    async def snapshot(self) -> LiveSnapshot:
        self.read += 1
        workers = [
            *(self._worker("prefill", Role.PREFILL, n) for n in range(self._half)),
            *(self._worker("decode", Role.DECODE, n) for n in range(self._half)),
        ]
        rate = self._random.uniform(10, 99)
        pairs = [("clients", "frontend"), ("frontend", "router"), ("router", "prefill")]
        edges = [Edge(source=a, target=b, request_rate=rate) for a, b in pairs]
        transfer = Edge(
            source="prefill",
            target="decode",
            request_rate=rate,
            byte_rate=rate * 1e6,
            is_kv_transfer=True,
        )
        roles = {"frontend": Role.FRONTEND, "prefill": Role.PREFILL, "decode": Role.DECODE}
        return LiveSnapshot(
            graph="graph.yaml",
            phase="ready",
            endpoint="http://127.0.0.1:8000/v1",
            models=("model",),
            time_s=time.time(),
            window_s=5.0,
            totals=Totals(request_rate=rate, ttft_s=rate / 100, itl_s=rate / 1000),
            components=tuple(
                ComponentView(name=name, role=role, desired=self._half, ready=self._half)
                for name, role in roles.items()
            ),
            workers=tuple(workers),
            edges=(*edges, transfer),
            events=self.events,
            alerts=(),
        )

    def _worker(self, component: str, role: Role, number: int) -> WorkerView:
        draw = self._random
        return WorkerView(
            name=f"{component}.{number}",
            component=component,
            role=role,
            state=ReplicaState.READY,
            pid=1000 + number,
            restarts=0,
            worker_id=f"{number:x}{component}",
            is_substitute=False,
            responds=True,
            running=draw.randrange(100),
            queued=draw.randrange(100),
            kv_usage=draw.random(),
            prefix_hit_rate=draw.random(),
            request_rate=draw.uniform(1, 9),
            output_token_rate=draw.uniform(100, 999),
            ttft_s=draw.uniform(0.1, 0.9),
            itl_s=draw.uniform(0.01, 0.09),
        )


@contextmanager
def serving(source: Synthetic, interval_s: float) -> Iterator[str]:
    options = PageOptions(graph=Path("graph.yaml"), port=0, allow_edit=False, interval_s=interval_s)
    urls: list[str] = []
    loop = asyncio.new_event_loop()
    task = loop.create_task(serve(source, options, urls.append))

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(asyncio.wait([task]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while not urls:
            if task.done():
                raise task.exception() or RuntimeError("the page has ended")
            time.sleep(0.05)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def processes() -> dict[str, list[psutil.Process]]:
    """This process, the server, the renderer with the most CPU time, and the rest of Chromium."""
    children = psutil.Process().children(recursive=True)
    lines = {one: one.cmdline() for one in children}
    renderer = max((one for one in children if "--type=renderer" in lines[one]), key=cpu_s)
    server = next(one for one in children if any("child.py" in word for word in lines[one]))
    rest = [one for one in children if one not in (renderer, server)]
    return {
        "sender": [psutil.Process()],
        "server": [server],
        "renderer": [renderer],
        "rest_of_browser": rest,
    }


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def delay_s(page: Page, source: Synthetic, number: int) -> float:
    """From an event to its line in the page."""
    page.evaluate(
        "window.seen = null; new MutationObserver((_, observer) => { window.seen = Date.now(); "
        "observer.disconnect(); }).observe(document.getElementById('events'), {childList: true})"
        " || 0"
    )
    at = time.time()
    kind, text = EventKind.SCALE, f"{number} → {number + 1} replicas"
    source.events = (*source.events, Event(time_s=at, kind=kind, subject="decode", text=text))
    page.wait_for("window.seen !== null")  # undefined, too: the page has been loaded again
    seen = page.evaluate("window.seen")
    if seen is None:
        raise RuntimeError("the page was loaded again while the delay was measured")
    return float(seen) / 1000 - at


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One run with a new server and a new browser."""
    source = Synthetic(args.workers)
    with serving(source, 1 / args.rate) as url, browser() as page:
        page.open(url, 1280, 900)
        page.wait_for("document.querySelectorAll('#workers tbody tr').length > 0")
        time.sleep(SETTLE_S)
        measured = processes()
        before = {name: sum(map(cpu_s, found)) for name, found in measured.items()}
        begun, read = time.monotonic(), source.read
        time.sleep(args.seconds)
        seconds = time.monotonic() - begun
        used = {n: (sum(map(cpu_s, found)) - before[n]) / seconds for n, found in measured.items()}
        updates = (source.read - read) / seconds
        delays = [delay_s(page, source, number) for number in range(EVENTS)]
    return {
        "updates_per_s": round(updates, 1),
        "seconds": round(seconds),
        "cpu_share_of_one_core": {name: round(share, 3) for name, share in used.items()},
        "event_delay_s": {"median": round(median(delays), 3), "max": round(max(delays), 3)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=80)
    parser.add_argument("--rate", type=float, default=10.0, help="updates/s")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=1, help="of each version")
    parser.add_argument("--other", type=Path, help="folder with another version of the page")
    args = parser.parse_args()
    versions = {"this": serve_module.CHILD}
    if args.other:
        versions["other"] = args.other.absolute() / "child.py"
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in versions}
    for _ in range(args.runs):
        for name, child in versions.items():
            serve_module.CHILD = child
            runs[name].append(measure(args))
    words = [str(word) if word != str(args.other) else "FOLDER" for word in sys.argv[1:]]
    command = " ".join(["uv run python benchmarks/live_page.py", *words])
    write_result("live_page", command, {"workers": args.workers, "runs": runs})


if __name__ == "__main__":
    main()
