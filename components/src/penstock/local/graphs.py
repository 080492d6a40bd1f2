"""All graphs of this machine's user: those that are up, and what killed runs left behind.

`penstock ls` prints them. They are found by their state folders.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.local.reconcile import ReplicaState
from penstock.local.state import StateDir, state_root
from penstock.local.state_file import LocalState


class GraphState(StrEnum):
    """What `penstock ls` shows: the phases of `up`, and two more."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    UNREADABLE = "unreadable"
    """It is up, but another version of penstock wrote its state."""
    KILLED = "killed"
    """It is not up: penstock was killed and could not clean up."""


@dataclass(frozen=True, kw_only=True)
class PoolCount:
    """Replicas of one component."""

    ready: int
    desired: int


@dataclass(frozen=True, kw_only=True)
class LocalGraph:
    """One state folder. What is unknown or does not apply is None or empty."""

    name: str
    """The file's name without its suffix."""
    source: str | None
    """Absolute path of the graph or manifest; None until the graph has written its state."""
    state: GraphState
    url: str | None
    """OpenAI base URL, with `/v1`."""
    models: tuple[str, ...]
    replicas: Mapping[str, PoolCount]
    """By component."""
    gpus: tuple[int, ...]
    """Indices of the GPUs that its replicas have, as in `nvidia-smi`."""
    pid: int | None
    """Process of `penstock up`."""
    started_at: float | None
    """When that process started, in seconds since 1970."""
    leftover_processes: int
    """Processes of a killed run that are still running."""
    folder: str
    """State folder, with the logs."""

    def as_dict(self) -> dict[str, Any]:
        """One entry of `penstock ls --json`."""
        return asdict(self)


def list_graphs() -> list[LocalGraph]:
    """The graphs of the user, sorted by name and file.

    Folders of graphs that ended normally contain only logs, and are left out.
    """
    folders = sorted(state_root().glob("*/lock"))
    running = [graph for lock in folders for graph in _graph(lock.parent)]
    return sorted(running, key=lambda graph: (graph.name, graph.source or ""))


def are_mockers(workers: Collection[int]) -> bool | None:
    """Whether one of the workers with these IDs of Dynamo simulates its engine; None if it is not
    known, because a worker is of no graph that is up on this machine."""
    folders = [lock.parent for lock in state_root().glob("*/lock")]
    states = [_state(StateDir.of_folder(folder))[0] for folder in folders]
    known = {r.worker_id: r.is_mocker for state in states if state for r in state.replicas}
    replicas = [known.get(f"{worker:x}") for worker in workers]
    if any(replicas):
        return True
    return None if not replicas or None in replicas else False


def _graph(folder: Path) -> Iterator[LocalGraph]:
    state_dir = StateDir.of_folder(folder)
    if state_dir.is_locked():
        pid = state_dir.owner_pid()
        state, is_readable = _state(state_dir)
        if state is not None and state.pid != pid:
            state = None  # of a killed run; the new one has not written its own yet
        graph_state = GraphState(state.phase) if state else GraphState.STARTING
        yield _local_graph(
            state_dir, state, graph_state if is_readable else GraphState.UNREADABLE, pid=pid
        )
    elif state_dir.state_file.exists():
        from penstock.local.process import leftover_processes  # a killed graph is rare

        state, _ = _state(state_dir)
        count = len(leftover_processes(folder))
        yield _local_graph(state_dir, state, GraphState.KILLED, leftovers=count)


def _state(state_dir: StateDir) -> tuple[LocalState | None, bool]:
    """The state, and whether its file is one that this version reads."""
    try:
        return state_dir.read(), True
    except InputError:
        return None, False


def _local_graph(
    state_dir: StateDir,
    state: LocalState | None,
    graph_state: GraphState,
    *,
    pid: int | None = None,
    leftovers: int = 0,
) -> LocalGraph:
    source = state.source if state else _source_in(state_dir.state_file)
    is_up = state is not None and graph_state is not GraphState.KILLED
    return LocalGraph(
        name=Path(source).stem if source else state_dir.path.name.rpartition("-")[0],
        source=source,
        state=graph_state,
        url=_url(state) if state and is_up else None,
        models=state.models if state and is_up else (),
        replicas=_replicas(state) if state and is_up else {},
        gpus=tuple(sorted(i for r in state.replicas for i in r.gpus)) if state and is_up else (),
        pid=pid,
        started_at=_started_at(pid),
        leftover_processes=leftovers,
        folder=str(state_dir.path),
    )


def _url(state: LocalState) -> str:
    """Where clients connect."""
    return state.gateway.url if state.gateway else state.endpoint


def _replicas(state: LocalState) -> dict[str, PoolCount]:
    ready = [r.program for r in state.replicas if r.state is ReplicaState.READY]
    return {
        name: PoolCount(ready=ready.count(name), desired=desired)
        for name, desired in state.desired_replicas.items()
    }


def _started_at(pid: int | None) -> float | None:
    if not pid:
        return None
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).create_time()
    return None


def _source_in(state_file: Path) -> str | None:
    """The graph's path in a state file of another version."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        source = json.loads(state_file.read_text()).get("source")
        return source if isinstance(source, str) else None
    return None
