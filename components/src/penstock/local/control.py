"""What other commands do to a graph that is up: look, stop, and check before an edit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.errors import GraphError, NotUpError, Problem, StartError
from penstock.local.discovery import Instance, open_discovery
from penstock.local.process import leftover_processes, terminate
from penstock.local.state import StateDir

POLL_S = 0.1


def status(path: Path, sets: Sequence[str] = ()) -> dict[str, Any]:
    """The state that `up` last wrote, with the workers as the discovery itself has them now.

    Raises NotUpError when nothing has the graph up.
    """
    up = _up(path)
    require_same_sets(up, sets)
    state = up.read()
    if not state:
        raise StartError(Problem(file=str(path), message="is only just starting", fix="ask again"))
    instances = asyncio.run(_instances(state["discovery"]))
    state["workers"] = [asdict(i) | {"worker_id": f"{i.worker_id:x}"} for i in instances]
    registered = {worker["worker_id"] for worker in state["workers"]}
    for replica in state["replicas"]:
        replica["registered"] = replica["worker_id"] in registered
    return state


async def _instances(discovery: Mapping[str, str]) -> tuple[Instance, ...]:
    # An engine registers one record for each endpoint; `generate` is the one that serves.
    return tuple(i for i in await open_discovery(discovery).instances() if i.endpoint == "generate")


def down(path: Path, sets: Sequence[str] = ()) -> str:
    """Drain the graph and wait; also ends what a killed penstock left. One line on what was done.

    Raises NotUpError when there was nothing to stop.
    """
    state = StateDir(path)
    if not state.is_locked():
        if not state.path.is_dir():
            raise _not_up(path)
        state.acquire()  # so that no `up` begins meanwhile
        killed = bool(state.read())  # a penstock that ends by itself removes its state
        count = terminate(leftover_processes(state.path), grace_s=10)
        state.clear()
        state.release()
        if not killed and not count:
            raise _not_up(path)
        return f"{path} was not up; cleared up after a penstock that was killed ({count} processes)"
    require_same_sets(state, sets)
    os.kill(state.owner_pid(), signal.SIGTERM)
    while state.is_locked():
        time.sleep(POLL_S)
    return f"{path} is down"


def require_same_sets(state: StateDir, sets: Sequence[str]) -> None:
    """Refuse --set that the running graph does not have: it is another graph than the one meant."""
    running = list(state.read().get("sets", []))
    if sets and state.is_locked() and list(sets) != running:
        raise GraphError(
            Problem(
                file=str(state.source),
                message=f"is up with {_sets(running)}, not with {_sets(list(sets))}",
                fix="leave --set out, or give the one it is up with",
            )
        )


def _sets(sets: list[str]) -> str:
    return " ".join(f"--set {s}" for s in sets) or "no --set"


def require_not_overridden(path: Path, changes: Mapping[str, int]) -> None:
    """Refuse an edit that a running `up --set` would hide."""
    state = StateDir(path)
    sets = state.read().get("sets", []) if state.is_locked() else []
    held = [s for s in sets for pool in changes if f",{pool}.replicas=" in f",{s}"]
    if held:
        raise GraphError(
            Problem(
                file=str(path),
                message=f"the running graph was started with --set {held[0]}, which hides the edit",
                fix="penstock down, then up without it",
            )
        )


def _up(path: Path) -> StateDir:
    state = StateDir(path)
    if not state.is_locked():
        raise _not_up(path)
    return state


def _not_up(path: Path) -> NotUpError:
    return NotUpError(Problem(file=str(path), message="is not up", fix=f"penstock up {path}"))
