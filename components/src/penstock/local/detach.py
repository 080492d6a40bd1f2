"""`up --detach`: run `up` in its own session and return when it is ready or has failed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from penstock.errors import AlreadyUpError, InputError, Problem, StartError
from penstock.local.state import StateDir
from penstock.local.state_file import LocalState, Phase

POLL_S = 0.1


def detach(path: Path, argv: list[str], timeout_s: float) -> int:
    """0 when the graph is ready; otherwise the exit code of the child, whose output is printed."""
    state = StateDir(path)
    if state.is_locked():
        raise AlreadyUpError(
            Problem(
                file=str(path),
                message="the graph is already up",
                fix=f"Run `penstock down {path}` first.",
            )
        )
    state.path.mkdir(parents=True, exist_ok=True)
    log = state.path / "up.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock.cli.main", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + timeout_s + 30
    while time.monotonic() < deadline:
        code = child.poll()
        if code is not None:
            sys.stderr.write(log.read_text(errors="replace"))
            return code or StartError.exit_code  # 0: stopped before it was ready
        now = _state_of(child.pid, state)
        if now is not None and now.phase is Phase.READY:
            for note in now.notes:
                print(note)
            url = now.gateway.url if now.gateway else now.endpoint
            print(f"ready: {url} (pid {child.pid}; stop it with `penstock down {path}`)")
            return 0
        time.sleep(POLL_S)
    os.kill(child.pid, 15)
    message = "the graph did not become ready"
    raise StartError(Problem(file=str(path), message=message, fix=f"Read the log: {log}."))


def _state_of(pid: int, folder: StateDir) -> LocalState | None:
    """The state that process ``pid`` wrote; None for one that an earlier run left behind."""
    try:
        state = folder.read()
    except InputError:
        return None
    return state if state is not None and state.pid == pid else None
