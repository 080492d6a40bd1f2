"""Child processes: each has its own process group and log, and is signaled by pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from penstock.errors import MissingToolError
from penstock.local.envoy_drain import sigterm_blocked
from penstock.local.state import MARKER

# Variables of the user's shell that would override the manifest.
FOREIGN = ("DYN_", "ETCD_", "NATS_", "TIKTOKEN_", "PYTHONPATH", "PYTHONHOME")

KILLED_S = 5.0


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without the variables that Dynamo reads, plus ``extra``."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return {**inherited, **extra}


class Child:
    """A started process and its process group. ``holds_sigterm``: see `Program.holds_sigterm`."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        cwd: Path,
        *,
        holds_sigterm: bool = False,
    ) -> None:
        self._ends_at = signal.SIGINT if holds_sigterm else signal.SIGTERM
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            output.write(f"--- penstock starts: {' '.join(argv)}\n".encode())
            output.flush()
            try:
                with sigterm_blocked() if holds_sigterm else contextlib.nullcontext():
                    self._process = subprocess.Popen(
                        [*end_with_parent(self._ends_at), *argv],
                        env=dict(env),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        cwd=cwd,
                        start_new_session=True,
                    )
            except OSError as error:
                raise MissingToolError(
                    f"cannot start {argv[0]}: {error.strerror}",
                    place=log.stem,
                ) from None
        self.argv = tuple(argv)
        self.log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def call_at_exit(self, callback: Callable[[], None]) -> None:
        """Have the running event loop call ``callback`` once, as soon as the process has exited.

        Without Linux's pidfd, or a free file descriptor, ``callback`` is not called: poll
        `exit_code`.
        """
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            return
        loop = asyncio.get_running_loop()

        def exited() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            callback()

        loop.add_reader(pidfd, exited)

    def end(self) -> None:
        """Signal the process alone: it stops its own children in order."""
        if self.exit_code() is None:
            self._process.send_signal(self._ends_at)

    def kill(self) -> None:
        """Send SIGKILL to the group and wait until the process has ended, which takes no time
        unless the kernel is still busy for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_S)


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> list[str]:
    """A prefix that sends a signal to the child when penstock is killed; empty without util-linux.

    setpriv execs, so the pid is the program's. Without it, the next `up` stops the leftovers.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", number.name, "--"] if setpriv else []


def last_lines(log: Path, count: int = 15) -> list[str]:
    try:
        with log.open(errors="replace") as lines:
            return [line.rstrip("\n") for line in deque(lines, maxlen=count)]
    except OSError:
        return []


def leftover_processes(state: Path) -> list[psutil.Process]:
    """Processes of this graph that a killed penstock left running."""
    leftovers = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARKER) == str(state):
                leftovers.append(process)
        except (psutil.Error, OSError):
            continue  # exited meanwhile, or another user's
    return leftovers


def terminate(processes: Iterable[psutil.Process], grace_s: float) -> int:
    """Send SIGTERM, after ``grace_s`` seconds SIGKILL; return the number of processes."""
    processes = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5)
    return len(processes)
