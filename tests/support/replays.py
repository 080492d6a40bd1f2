"""Share one replay process among all tests of a pytest worker.

A replay process takes 2 s of CPU time for its first job on a GPU type, and 0.1 s for most later
ones. tests/simulate/test_replay.py, and the tests that run `penstock` as a process, verify that
processes start and end.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest

from penstock.environments.paths import environments_root
from penstock.errors import SimulationError
from penstock.plan import steps
from penstock.simulate import replay
from penstock.simulate.replay import Child, Result

_jobs = threading.Lock()  # one at a time
_kept: list[_KeptChild] = []  # at most one
_computed: dict[str, list[Any]] = {}  # step times
_compute_times = steps._times


class _KeptChild(Child):
    def __init__(self, python: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-tests-")
        super().__init__(python, self._folder.name)
        self.begin()

    def end(self) -> None:
        super().end()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


class SharedChild:
    """A substitute for `Child` that runs jobs in the shared process. `end` stops that process only
    if a job is running."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._busy: _KeptChild | None = None
        self._is_over = False

    def begin(self) -> None:
        """The kept process is started with the first job."""

    def run(self, line: str, wait_s: float = inf) -> Result:
        with _jobs:
            if self._is_over:
                raise SimulationError("the replay has been ended")
            self._busy = _ready(self._python)
            try:
                return self._busy.run(line, wait_s)
            finally:
                self._busy = None

    def end(self) -> None:
        self._is_over = True
        busy = self._busy
        if busy is not None:
            busy.end()


def _ready(python: Path) -> _KeptChild:
    if not _kept or not _kept[0].is_running:
        _kept[:] = [_KeptChild(python)]
    return _kept[0]


def kept_pid() -> int | None:
    """Of the shared process; None if it has not started."""
    return _kept[0].pid if _kept else None


def _times_once(inputs: Sequence[Mapping[str, Any]], limit_s: float) -> list[Any]:
    """As `steps._times`, which takes 3 s of CPU time and is pure."""
    key = f"{environments_root()} {json.dumps(inputs)}"
    if key not in _computed:
        _computed[key] = _compute_times(inputs, limit_s)
    return _computed[key]


def install() -> None:
    """Share the process of the installed environment `sim`; other environments start their own."""
    steps._times = _times_once
    installed = (environments_root() / "sim").resolve()

    def child(python: Path, folder: str) -> Child | SharedChild:
        is_installed = python.parents[1].resolve() == installed
        return SharedChild(python) if is_installed else Child(python, folder)

    replay.Child = child  # type: ignore[misc,assignment]


def end() -> None:
    """After the last test."""
    for child in _kept:
        child.end()


@pytest.fixture
def real_replay_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test replay processes of its own."""
    monkeypatch.setattr(replay, "Child", Child)
