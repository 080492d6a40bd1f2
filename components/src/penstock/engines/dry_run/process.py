"""One long-lived process per engine and GPU, which builds the configurations that it is asked for.

Its Python is that of the environment of the engine. Use `EngineProcesses` as a context: no process
outlives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from penstock.engines.dry_run.protocol import (
    Configuration,
    Outcome,
    Undecided,
    decode,
    encode,
    hardware_in_json,
)
from penstock.engines.parsers import child_env
from penstock.errors import MissingToolError
from penstock.files import only_penstock
from penstock.manifests.deployment import Engine

# The import takes 12 to 17 s; on a busy machine it has taken 145 s.
START_LIMIT_S = 240.0
TIME_LIMIT_S = 60.0  # one configuration takes 0.1 s, its model class once up to 10 s
MOST_STARTS = 4  # of one process, so that a broken environment does not take hours
MODULES: Mapping[Engine, str] = {
    Engine.VLLM: "penstock.engines.dry_run.vllm_child",
    Engine.SGLANG: "penstock.engines.dry_run.sglang_child",
}
LOOPBACK = "127.0.0.1"
# Nothing is downloaded or reported, and nothing binds another address than loopback.
OFFLINE: Mapping[str, str] = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "TRANSFORMERS_OFFLINE"), "1"),
    **dict.fromkeys(("VLLM_HOST_IP", "VLLM_LOOPBACK_IP", "SGLANG_HOST_IP"), LOOPBACK),
    "VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK,
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "CUDA_VISIBLE_DEVICES": "",
}


class _DeadError(Exception):
    """The process ended, or did not respond in time."""


class EngineProcess:
    """The process of one engine; `version` is that of the engine in its environment."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        start_limit_s: float = START_LIMIT_S,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._command, self._folder, self._time_limit_s = command, folder, time_limit_s
        self._start_limit_s = start_limit_s
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self.version = ""
        self._starts = 0

    def start(self) -> None:
        """MissingToolError if the engine's code cannot be imported."""
        self._starts += 1
        self._log = tempfile.TemporaryFile("w+", dir=self._folder)  # noqa: SIM115  closed by `end`
        path = str(only_penstock(self._folder / "path"))
        folders = {"PYTHONPATH": path, "TMPDIR": str(self._folder), "VLLM_CACHE_ROOT": path}
        self._process = subprocess.Popen(
            list(self._command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**child_env(), **OFFLINE, **folders},
            cwd=self._folder,
            start_new_session=True,  # Ctrl-C is for this process, which ends the child
        )
        try:
            self.version = json.loads(self._line(self._start_limit_s))["version"]
        except (_DeadError, ValueError, KeyError) as error:
            reason = self._last_line() or str(error)
            self.end()
            raise MissingToolError(f"the engine's own code does not start: {reason}") from None

    def ask(self, configuration: Configuration) -> Outcome:
        """The engine's outcome. A process that ends or hangs is started again for the next
        configuration, at most until it was started `MOST_STARTS` times."""
        if self._process is None and self._starts >= MOST_STARTS:
            reason = f"the engine's own code failed {self._starts} times and is not started again"
            return Undecided(reason=reason)
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # then there is no response either
                print(encode(configuration), file=self._process.stdin, flush=True)
            return decode(self._line(self._time_limit_s), configuration.models)
        except _DeadError as error:
            self.end()
            return Undecided(reason=str(error))

    def _line(self, limit_s: float) -> str:
        """The next line of the process; it writes a line at once, so that one read gets it."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                raise _DeadError(f"the engine's own code did not respond within {limit_s:g} s")
        line = self._process.stdout.readline()
        if not line.endswith("\n"):  # it may end while it writes
            raise _DeadError("the engine's own code ended while it built the configuration")
        return line

    def _last_line(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else ""

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # Its session's group: a model class is inspected in a fork of it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class EngineProcesses:
    """A process for each engine and GPU that is asked, started at the first request: modules of
    the engines read the GPU when they are imported."""

    def __init__(self, pythons: Mapping[Engine, Path]) -> None:
        """``pythons``: of the environments that have the engines."""
        self._pythons = pythons
        self._children: dict[tuple[Engine, str], EngineProcess] = {}
        # Engine → why its code does not start; it is not started for each file.
        self._broken: dict[Engine, MissingToolError] = {}
        self._outcomes: dict[tuple[Engine, str], Outcome] = {}
        self._versions: dict[Engine, str] = {}
        self._temporary = tempfile.TemporaryDirectory(prefix="penstock-dry-run-")
        self.folder = Path(self._temporary.name).resolve()

    def __enter__(self) -> EngineProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.end()
        self._temporary.cleanup()

    def has(self, engine: Engine) -> bool:
        return engine in self._pythons

    def version(self, engine: Engine) -> str:
        """Of an engine that was asked."""
        return self._versions[engine]

    def ask(self, engine: Engine, configuration: Configuration) -> Outcome:
        """The outcome of one configuration; an equal one is asked once. MissingToolError if the
        code of the engine, one of ``pythons``, does not start."""
        key = (engine, encode(configuration))
        if key not in self._outcomes:
            self._outcomes[key] = self._child(engine, configuration).ask(configuration)
        return self._outcomes[key]

    def _child(self, engine: Engine, configuration: Configuration) -> EngineProcess:
        if engine in self._broken:
            raise self._broken[engine]
        key = (engine, configuration.hardware.name)
        if key not in self._children:
            gpu = json.dumps(hardware_in_json(configuration.hardware))
            command = (str(self._pythons[engine]), "-P", "-m", MODULES[engine], gpu)
            child = EngineProcess(command, self.folder)
            self._children[key] = child  # before it starts: a signal may come while it does
            try:
                child.start()
            except MissingToolError as error:
                self._broken[engine] = error
                raise
            self._versions[engine] = child.version
        return self._children[key]
