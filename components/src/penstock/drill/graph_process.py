"""`penstock up` as a child process; also for the benchmarks and the end-to-end tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from penstock.local.process import end_with_parent
from penstock.local.state import StateDir

POLL_S = 0.05
PENSTOCK = (sys.executable, "-m", "penstock.cli.main")


class GraphProcess:
    """One `penstock up` in the foreground; a context manager that stops it.

    ``log`` is the file with its output. ``program`` replaces the command `penstock`; it gets the
    same arguments.
    """

    def __init__(
        self,
        graph: Path,
        folder: Path,
        arguments: Sequence[str] = (),
        env: dict[str, str] | None = None,
        program: Sequence[str] = PENSTOCK,
    ) -> None:
        self.graph = graph
        self._program = program
        self.log = folder / "up.log"
        self._env = {**os.environ, "PENSTOCK_STATE_HOME": str(folder / "state"), **(env or {})}
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> GraphProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._output = self.log.open("ab")
        command = [*self._program, "up", str(self.graph)]
        # The signal comes when the thread that starts the process ends.
        is_main = threading.current_thread() is threading.main_thread()
        self._process = subprocess.Popen(
            [*(end_with_parent() if is_main else ()), *command, *self._arguments],
            env=self._env,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process, which then stops the graph
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def penstock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another verb with the same state folder."""
        return subprocess.run(
            [*self._program, *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def state(self) -> dict[str, Any]:
        """The content of `penstock status --json`, read without starting a process."""
        root = Path(self._env["PENSTOCK_STATE_HOME"])
        try:
            content = json.loads(StateDir(self.graph, root).state_file.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def wait_ready(self, timeout_s: float = 60) -> str:
        """The endpoint's URL, after a first completion succeeded."""
        return str(self.wait_for(lambda s: s.get("phase") == "ready", timeout_s)["endpoint"])

    def wait_for(self, done: Any, timeout_s: float = 60) -> dict[str, Any]:
        """The first state that ``done`` accepts; TimeoutError shows the log."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            state = self.state()
            if state.get("pid") == self.pid and done(state):
                return state
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(POLL_S)
        raise TimeoutError(
            "`penstock up` exited, or was not in the expected state in time; its log:\n"
            f"{self.log.read_text('utf-8', 'replace')}"
        )

    def wait_counts(self, timeout_s: float = 60, **replicas: int) -> dict[str, Any]:
        """Wait until each pool has exactly that many replicas, all ready."""

        def done(state: dict[str, Any]) -> bool:
            rows = [r for r in state["replicas"] if r["program"] in replicas]
            return all(r["state"] == "ready" for r in rows) and all(
                sum(r["program"] == pool for r in rows) == count for pool, count in replicas.items()
            )

        return self.wait_for(done, timeout_s)

    def wait_ended(self, timeout_s: float = 10) -> None:
        """Wait until `penstock up` has ended; it can then be started again."""
        assert self._process is not None
        self._process.wait(timeout_s)
        if self._output is not None:
            self._output.close()

    def pids(self, program: str) -> list[int]:
        return [
            int(r["pid"])
            for r in self.state()["replicas"]
            if r["program"] == program and r["state"] == "ready"
        ]

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 90) -> int:
        """The exit code after ``number``; SIGKILL when it does not end in time."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            if self._output is not None:
                self._output.close()
