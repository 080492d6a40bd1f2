"""Shared by the end-to-end tests: files, and checks for leftover processes and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil

from penstock.drill.graph_process import GraphProcess

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"

Up = Callable[..., GraphProcess]


def without_envoy(folder: Path) -> dict[str, str]:
    """The plain machine: no environment is installed."""
    return {"PENSTOCK_ENVIRONMENTS": str(folder / "no-environments")}


def left(folder: Path) -> list[psutil.Process]:
    """Processes of graphs whose state lies under ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PENSTOCK_STATE", "").startswith(str(folder)):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def assert_nothing_left(folder: Path) -> None:
    """No process, no discovery entry, no temporary file: only the logs (and up's own words)."""
    assert left(folder) == []
    run = [p for p in (folder / "state").glob("*/run/**/*") if p.is_file()]
    assert run == []
    assert list((folder / "state").glob("*/state.json")) == []


def listening(folder: Path) -> set[str]:
    """The addresses that processes of the graphs under ``folder`` listen on."""
    return {
        connection.laddr.ip
        for process in left(folder)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
