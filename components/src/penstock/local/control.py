"""Operations on a running graph: status, shutdown, and the checks before an edit."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import GraphError, NotUpError, StartError
from penstock.local.discovery import Instance, open_discovery
from penstock.local.load import GraphLoad, LoadSampler
from penstock.local.reconcile import ReplicaState
from penstock.local.state import StateDir
from penstock.local.state_file import DiscoveryState, LocalState, Phase
from penstock.text.commands import command, restart

POLL_S = 0.1
SETTLE_S = 120.0  # vLLM on a CPU starts in 44 to 78 s
EDIT_S = 10.0  # `up` prepares an edit in 0.3 to 3 s, more when the CPU is busy


@dataclass(frozen=True, kw_only=True)
class GraphStatus:
    """A running graph."""

    state: LocalState
    """What `up` last wrote."""
    workers: tuple[Instance, ...]
    """The workers that are registered in discovery now."""
    load: GraphLoad | None = None
    """None if it was not sampled."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `penstock status --json`."""
        registered = {f"{worker.worker_id:x}" for worker in self.workers}
        document: dict[str, Any] = msgspec.to_builtins(self.state)
        for replica in document["replicas"]:
            replica["registered"] = replica["worker_id"] in registered
        document["workers"] = [
            asdict(worker) | {"worker_id": f"{worker.worker_id:x}"} for worker in self.workers
        ]
        document["load"] = None if self.load is None else self.load.as_dict()
        return document


def status(path: Path, sets: Sequence[str] = ()) -> GraphStatus:
    """NotUpError when no `up` runs the graph; InputError when its state cannot be read."""
    up = _up(path)
    require_same_sets(up, sets)
    state = up.read()
    if state is None:
        raise StartError(
            "the graph is starting and has no status yet",
            file=str(path),
            fix="Run the command again in a few seconds.",
        )
    import asyncio

    return GraphStatus(state=state, workers=asyncio.run(_instances(state.discovery)))


def status_with_load(
    path: Path, sampler: LoadSampler, sets: Sequence[str] = (), interval_s: float = 0.0
) -> GraphStatus:
    """As `status`, with a sample; with ``interval_s``, an earlier one precedes it by that time."""
    current = status(path, sets)
    if interval_s and current.state.phase is Phase.READY:
        sampler.sample(current.state)
        time.sleep(interval_s)
    return replace(current, load=sampler.sample(current.state))


def settled(path: Path, counts: Mapping[str, int]) -> LocalState:
    """The status once `up` has applied ``counts``, the replicas of each component in the file.

    After `SETTLE_S`, or if `up` rejected the edit, the status as it is.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        state = status(path).state
        if state.rejected_edit or _is_settled(state, counts) or time.monotonic() > deadline:
            return state
        time.sleep(POLL_S)


def edited(path: Path, edit: Callable[[], object], counts: Mapping[str, int]) -> None:
    """Run ``edit``; if the graph is up, return once `up` has taken the edit over.

    GraphError if `up` rejects it, or if another edit replaces it. After `EDIT_S` it returns anyway:
    `up` applies the edit later.
    ``counts``: replicas by component, as the edited file has them.
    """
    folder = StateDir(path)
    state = folder.read() if folder.is_locked() else None
    edit()
    if state is None:
        return
    before, deadline = state.rejected_edit, time.monotonic() + EDIT_S
    while state is not None and not _has_replicas(state, counts):
        is_late = time.monotonic() > deadline
        if state.rejected_edit and (state.rejected_edit != before or is_late):
            raise GraphError(
                "`up` rejected the edit: " + " ".join(state.rejected_edit),
                file=str(path),
                fix="Correct the file; the graph runs on with its last valid content.",
            )
        if is_late:
            _require_replicas(path, counts)
            return
        time.sleep(POLL_S)
        state = folder.read() if folder.is_locked() else None


def _require_replicas(path: Path, counts: Mapping[str, int]) -> None:
    """GraphError if another edit of the file has replaced these replicas."""
    # The graph model takes long to import, and most calls do not need it.
    from penstock.graph.edit import set_replicas
    from penstock.graph.text_file import read_text_file

    text = read_text_file(path)
    if set_replicas(text, counts, str(path)) != text:
        message = "another edit changed the number of replicas again"
        raise GraphError(message, file=str(path), fix="Check the file, and repeat the edit.")


def _has_replicas(state: LocalState, counts: Mapping[str, int]) -> bool:
    """`up` knows the counts, and has started the new replicas."""
    rows = Counter(r.program for r in state.replicas)
    return all(state.desired_replicas.get(n) == c and rows[n] >= c for n, c in counts.items())


def _is_settled(state: LocalState, counts: Mapping[str, int]) -> bool:
    desired = state.desired_replicas
    if any(desired.get(name, count) != count for name, count in counts.items()):
        return False  # the edit was not seen yet
    running = [r for r in state.replicas if r.program in desired]
    ready = Counter(r.program for r in running if r.state is ReplicaState.READY)
    return len(running) == ready.total() and all(ready[n] == c for n, c in desired.items())


async def _instances(discovery: DiscoveryState) -> tuple[Instance, ...]:
    # An engine registers one record for each endpoint; `generate` is the one that serves.
    instances = await open_discovery(discovery).instances() or ()
    return tuple(i for i in instances if i.endpoint == "generate")


def down(path: Path, sets: Sequence[str] = ()) -> str:
    """Drain the graph, wait until it has stopped, and return one line that says what was done.

    Also stops the processes of a killed penstock. NotUpError when there is nothing to stop.
    """
    from penstock.local.process import leftover_processes, terminate

    state = StateDir(path)
    if not state.is_locked():
        if not state.path.is_dir():
            raise _not_up(path)
        state.acquire()  # no `up` may start meanwhile
        killed = state.state_file.exists()  # a clean exit removes it
        count = terminate(leftover_processes(state.path), grace_s=10)
        state.clear()
        state.release()
        if not killed and not count:
            raise _not_up(path)
        return f"{path} was not up; removed what a killed penstock left behind ({count} processes)"
    require_same_sets(state, sets)
    os.kill(state.owner_pid(), signal.SIGTERM)
    while state.is_locked():
        time.sleep(POLL_S)
    return f"{path} is down"


def require_same_sets(state: StateDir, sets: Sequence[str]) -> None:
    """GraphError for `--set` values that differ from those of the running graph."""
    if not sets or not state.is_locked():
        return
    current = state.read()
    running = list(current.sets) if current is not None else []
    if list(sets) != running:
        raise GraphError(
            f"the graph is up with {_sets(running)}, not with {_sets(list(sets))}",
            file=str(state.source),
            fix="Omit --set, or give the values of the running `up`.",
        )


def _sets(sets: list[str]) -> str:
    return " ".join(f"--set {s}" for s in sets) or "no --set"


def require_not_overridden(path: Path, changes: Mapping[str, int]) -> None:
    """GraphError for an edit that a running `up --set` overrides."""
    folder = StateDir(path)
    state = folder.read() if folder.is_locked() else None
    sets = state.sets if state is not None else ()
    hiding = [s for s in sets for pool in changes if f",{pool}.replicas=" in f",{s}"]
    if hiding:
        raise GraphError(
            f"the running `up` has --set {hiding[0]}, which overrides the edit",
            file=str(path),
            fix=f"Run {restart(path)} without it.",
        )


def _up(path: Path) -> StateDir:
    state = StateDir(path)
    if not state.is_locked():
        raise _not_up(path, f"Run {command('up', path)}.")
    return state


def _not_up(path: Path, fix: str = "") -> NotUpError:
    from penstock.local.file_kind import LIST_GRAPHS, not_up_error

    return not_up_error(path, "the graph is not up", fix or LIST_GRAPHS, has_run=False)
