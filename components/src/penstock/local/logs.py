"""Print the logs of a graph's processes, also after it went down: `decode.0 | line`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO

from penstock.errors import UsageError
from penstock.local.file_kind import not_up_error
from penstock.local.process import last_lines
from penstock.local.state import StateDir
from penstock.text.commands import command

POLL_S = 0.2


def show_logs(state: StateDir, name: str | None, lines: int, follow: bool) -> None:
    """Print the last ``lines`` of each chosen log, and with ``follow`` each new line."""
    logs = choose(state, name)
    width = max(len(log.stem) for log in logs)
    for log in logs:
        for line in last_lines(log, lines):
            print(f"{log.stem:<{width}} | {line}")
    if follow:
        _follow(state, name, width)


def choose(state: StateDir, name: str | None) -> list[Path]:
    """The logs of one process (`decode.0`), of one program (`decode`), or all."""
    logs = sorted(state.logs.glob("*.log")) if state.logs.is_dir() else []
    chosen = [log for log in logs if name is None or name in (log.stem, log.stem.rsplit(".", 1)[0])]
    if chosen:
        return chosen
    if name and logs:
        fix = f"Use one of {', '.join(log.stem for log in logs)}."
        message = f"no process is called {name!r}"
        raise UsageError(message, file=str(state.source), fix=fix)
    fix = f"Run {command('up', state.source)}."
    raise not_up_error(state.source, "the graph was never up", fix)


def _follow(state: StateDir, name: str | None, width: int) -> None:
    open_logs: dict[Path, IO[str]] = {}
    first = True
    while True:
        for log in choose(state, name):
            if log not in open_logs:
                open_logs[log] = log.open(errors="replace")
                if first:
                    open_logs[log].seek(0, 2)
            for line in open_logs[log]:
                print(f"{log.stem:<{width}} | {line.rstrip()}", flush=True)
        first = False
        time.sleep(POLL_S)
