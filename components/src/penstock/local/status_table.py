"""Print a running graph: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.local.control import GraphStatus
from penstock.local.load import GraphLoad, LoadSampler, WorkerLoad
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import LocalState, Phase, ReplicaStatus
from penstock.serving.frontend_metrics import FrontendMetrics
from penstock.text.terminal import QUIT, columns, console, duration_text, keys

SAMPLE_INTERVAL_S = 2.0
COLORS = {
    ReplicaState.READY: "green",
    ReplicaState.STARTING: "yellow",
    ReplicaState.UNHEALTHY: "red",
    ReplicaState.DRAINING: "cyan",
    ReplicaState.CRASHED: "red",
}


def status_table(state: LocalState, load: GraphLoad | None = None, *, wide: bool = False) -> Table:
    """One row for each process; what is unknown is blank."""
    numbers = ("pid", "restarts", "req/s", "running", "queued", "KV")
    more = ("role", "port", "GPUs", "worker id", "log") if wide else ()
    table = columns("process", "state", *numbers, *more, numbers=numbers)
    for replica in state.replicas:
        worker = load.workers.get(replica.name) if load else None
        table.add_row(
            replica.name,
            f"[{COLORS[replica.state]}]{replica.state}[/]",
            str(replica.pid),
            str(replica.restarts),
            *_figures(worker),
            *(map(Text, _details(replica)) if wide else ()),  # the path of a log may have brackets
        )
    return table


def _figures(worker: WorkerLoad | None) -> list[str]:
    if worker is None:
        return [""] * 4
    return [
        "" if worker.request_rate is None else f"{worker.request_rate:.1f}",
        "" if worker.running is None else str(worker.running),
        "" if worker.queued is None else str(worker.queued),
        "" if worker.kv_usage is None else f"{worker.kv_usage:.0%}",
    ]


def _details(replica: ReplicaStatus) -> list[str]:
    role = replica.role + (" (mocker)" if replica.is_substitute else "")
    port = str(replica.port or replica.system_port or "")
    gpus = ", ".join(map(str, replica.gpus))
    return [role, port, gpus, replica.worker_id or "", replica.log]


def load_table(load: GraphLoad) -> Table:
    """The figures of the graph as a whole: since the last sample, and since the start."""
    numbers = ("requests", "requests/s", "TTFT p50", "ITL p50", "prefix-cache hit rate")
    table = columns("", *numbers, numbers=numbers)
    if load.interval is not None and load.interval_s:
        rate = f"{load.request_rate:.1f}"
        table.add_row(f"last {load.interval_s:.0f} s", *_totals(load.interval, rate))
    if load.total is not None:
        table.add_row("since start", *_totals(load.total, ""))
    return table


def _totals(metrics: FrontendMetrics, rate: str) -> list[str]:
    hits = metrics.prefix_hit_rate
    return [
        f"{metrics.requests:,}",
        rate,
        "" if metrics.ttft_s is None else f"{metrics.ttft_s * 1000:.0f} ms",
        "" if metrics.itl_s is None else f"{metrics.itl_s * 1000:.1f} ms",
        "" if hits is None or not metrics.requests else f"{hits:.0%}",
    ]


def overview(state: LocalState, load: GraphLoad | None = None, *, wide: bool = False) -> Group:
    """What `status` and `up` show of a running graph."""
    url = state.gateway.url if state.gateway else state.endpoint
    title = Text(f"{state.phase}: {url}", style="bold")
    parts: list[RenderableType] = [
        title,
        *_gateway_lines(state),
        status_table(state, load, wide=wide),
    ]
    if load is not None and load.total is not None:
        parts += ["", load_table(load)]
    if load is not None and load.router_queue:
        parts.append(f"waiting in the router: {load.router_queue} requests")
    return Group(*parts)


def _gateway_lines(state: LocalState) -> list[Text]:
    gateway = state.gateway
    if gateway is None:
        return []
    condition = f"pid {gateway.pid}, {gateway.restarts} restarts"
    if not gateway.is_running:
        condition = f"not running, log: {gateway.log}"
    lines = [
        f"gateway: {gateway.summary} ({condition})",
        f"without a key, on this machine: {state.endpoint}",
        *(f"last edit of the keys rejected: {line}" for line in gateway.rejected_keys),
    ]
    return [Text(line) for line in lines]


def status_view(status: GraphStatus, *, wide: bool = False) -> Group:
    """What `status` shows: the overview, the replicas, substitutes, and a rejected edit."""
    desired = ", ".join(f"{name} {count}" for name, count in status.state.desired_replicas.items())
    lines = [f"desired replicas: {desired}; registered workers: {len(status.workers)}"]
    if wide:
        lines += [f"note: {note}" for note in status.state.notes]
    elif substitutes := sorted({r.program for r in status.state.replicas if r.is_substitute}):
        lines.append(f"using mocker instead of the graph's engine: {', '.join(substitutes)}")
    lines += [f"last edit rejected: {line}" for line in status.state.rejected_edit]
    return Group(overview(status.state, status.load, wide=wide), "", *map(Text, lines))


def print_status(status: GraphStatus, *, wide: bool = False) -> None:
    console().print(status_view(status, wide=wide))


def watch_status(read: Callable[[], GraphStatus], *, wide: bool = False) -> None:
    """Print what ``read`` returns every two seconds until q, Ctrl-C, or until it raises; a terminal
    is updated in place."""
    screen = console()
    with keys() as pressed, Live(console=screen, auto_refresh=False) as live:
        while True:
            view = status_view(read(), wide=wide)
            if screen.is_terminal:
                live.update(view, refresh=True)
            else:
                screen.print(view)
                sys.stdout.flush()
            if pressed(SAMPLE_INTERVAL_S) in QUIT:
                return


class Screen:
    """Output of `up`: lines, and on a terminal a live table below them.

    ``quiet``: lines only.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._load = _Background()
        self._started = time.monotonic()
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            self._load.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._load.stop()
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()

    def say(self, line: str) -> None:
        """Print one line above the table."""
        with contextlib.suppress(OSError):  # a closed terminal must not stop the graph
            if self._live is not None:
                self._console.print(line, markup=False)
            else:
                print(line, file=sys.stderr, flush=True)

    def show(self, state: LocalState) -> None:
        if self._live is None:
            return
        self._load.state = state
        view = overview(state, self._load.latest)
        if state.phase is Phase.STARTING:
            waited = duration_text(time.monotonic() - self._started)
            view = Group(view, Text(f"starting for {waited}", style="dim"))
        with contextlib.suppress(OSError):
            self._live.update(view, refresh=True)


class _Background:
    """Samples in a thread: a process that does not respond must not delay `up`."""

    def __init__(self) -> None:
        self.state: LocalState | None = None
        self.latest: GraphLoad | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return at once: the thread ends with the process."""
        self._stopping.set()

    def _run(self) -> None:
        sampler = LoadSampler()
        while not self._stopping.wait(SAMPLE_INTERVAL_S):
            state = self.state
            if state is not None and state.phase is Phase.READY:
                self.latest = sampler.sample(state)
