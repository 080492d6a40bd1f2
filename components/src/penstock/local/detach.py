"""`up --detach`: run `up` in its own session and return when it is ready or has failed.

The child's output goes to a log; if the graph does not start, the log is printed with its cause.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

from penstock.errors import AlreadyUpError, InputError, StartError
from penstock.files import write_file
from penstock.local.state import StateDir
from penstock.local.state_file import LocalState, Phase
from penstock.text.commands import as_invoked, command

POLL_S = 0.1
LATER_S = 30.0  # the child has the same time limit, and then stops its processes
STOP_S = 60.0  # for a child that is asked to stop; it prints the cause when it exits


def detach(path: Path, argv: list[str], timeout_s: float) -> int:
    """0 when the graph is ready; otherwise the exit code of the child, whose output is printed.

    StartError if the child is killed, or does not become ready in time. The latter and Ctrl-C stop
    the child.
    """
    state = StateDir(path)
    if state.is_locked():
        raise AlreadyUpError(
            "the graph is already up",
            file=str(path),
            fix=f"Run {command('down', path)} first.",
        )
    state.create()
    log = state.path / "up.log"
    write_file(log, b"")
    with log.open("ab") as output:  # another `up` of the graph at this moment appends too
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock.cli.main", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    limit_s = timeout_s + LATER_S
    deadline = monotonic() + limit_s
    try:
        while monotonic() < deadline:
            code = child.poll()
            if code is not None:
                return _failed(code, path, log)
            now = _state_of(child.pid, state)
            if now is not None and now.phase is Phase.READY:
                _print_ready(now, child.pid, path)
                return 0
            sleep(POLL_S)
    except KeyboardInterrupt:
        _stop(child)
        raise
    _stop(child)
    _print(log)
    message = f"the graph did not become ready within {limit_s:g} s"
    raise StartError(message, file=str(path), fix=f"Read the log: {log}.")


def _print_ready(state: LocalState, pid: int, path: Path) -> None:
    for note in state.notes:
        print(as_invoked(note))
    url = state.gateway.url if state.gateway else state.endpoint
    print(as_invoked(f"ready: {url} (pid {pid}; stop it with {command('down', path)})"))


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Ask the child to stop its processes, and wait."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(STOP_S)


def _failed(code: int, path: Path, log: Path) -> int:
    """The exit code of a child that exited; StartError if a signal ended it without a message, or
    if its log is empty, as on a full disk."""
    _print(log)
    if code < 0:
        message = f"`up` was ended by {signal.Signals(-code).name} before the graph was ready"
        raise StartError(message, file=str(path), fix=f"Read the log: {log}.")
    if not log.stat().st_size:
        message = f"`up` ended with exit code {code} and an empty log; the disk may be full"
        fix = f"Check the free space on the file system of {log}."
        raise StartError(message, file=str(path), fix=fix)
    return code or StartError.exit_code  # 0: stopped before it was ready


def _print(log: Path) -> None:
    sys.stderr.write(log.read_text(errors="replace"))


def _state_of(pid: int, folder: StateDir) -> LocalState | None:
    """The state that process ``pid`` wrote; None for one that an earlier run left behind."""
    try:
        state = folder.read()
    except InputError:
        return None
    return state if state is not None and state.pid == pid else None
