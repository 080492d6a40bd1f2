"""Print a running graph: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.local.control import GraphStatus
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import LocalState

COLORS = {
    ReplicaState.READY: "green",
    ReplicaState.STARTING: "yellow",
    ReplicaState.UNHEALTHY: "red",
    ReplicaState.DRAINING: "cyan",
    ReplicaState.CRASHED: "red",
}


def status_table(state: LocalState) -> Table:
    """One row for each process."""
    table = Table(title=f"{state.phase}: {state.endpoint}", title_justify="left")
    for column in ("process", "role", "state", "port", "pid", "restarts", "worker id"):
        table.add_column(column)
    for replica in state.replicas:
        table.add_row(
            replica.name,
            replica.role + (" (mocker)" if replica.is_substitute else ""),
            f"[{COLORS[replica.state]}]{replica.state}[/]",
            str(replica.port or replica.system_port or ""),
            str(replica.pid),
            str(replica.restarts),
            replica.worker_id or "",
        )
    return table


def print_status(status: GraphStatus) -> None:
    console = Console()
    console.print(status_table(status.state))
    desired = ", ".join(f"{name} {count}" for name, count in status.state.desired_replicas.items())
    console.print(
        f"desired replicas: {desired}; registered workers: {len(status.workers)}",
        highlight=False,
    )
    for line in status.state.rejected_edit:
        console.print(f"last edit rejected: {line}", markup=False, highlight=False)


class Screen:
    """Output of `up`: lines, and on a terminal a live table below them."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.update(status_table(state), refresh=True)
