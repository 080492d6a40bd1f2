"""Shared by the end-to-end tests: files, skips, and checks for leftover processes and files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.environments import environments_root
from tests.support.outside_files import recipes

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


def require_recipes() -> Path:
    folder = recipes()
    if not folder.is_dir():
        pytest.skip(f"the published recipes are not in {folder}: see CONTRIBUTING.md")
    return folder


def require_envoy() -> None:
    if not (environments_root() / "envoy" / "installed.txt").exists():
        pytest.skip("the envoy environment is not installed: penstock env install envoy")


def require_servers() -> None:
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    missing = [p for p in ("etcd", "nats-server") if shutil.which(p, path=path) is None]
    if missing:
        pytest.skip(f"not on PATH: {', '.join(missing)} (Debian: etcd-server, nats-server)")


def listening(folder: Path) -> set[str]:
    """The addresses that processes of the graphs under ``folder`` listen on."""
    return {
        connection.laddr.ip
        for process in left(folder)
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
