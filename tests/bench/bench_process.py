"""`penstock bench` as a process of its own, which a test ends, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from tests.support.processes import command_of

POLL_S = 0.5  # a list of all processes takes 10 ms
LONGEST_S = 120.0
EXIT_S = 10.0  # in which the kernel removes processes that were killed


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    left: Sequence[str]
    """Commands of processes that it started and that still run."""


@dataclass(frozen=True, kw_only=True)
class Running:
    process: subprocess.Popen[str]
    children: set[psutil.Process]
    """All that it started so far."""

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


def run_process(arguments: Sequence[str], act: Callable[[Running], bool], **environ: str) -> Ended:
    """``act`` is called again and again while the process runs, until it returns True."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    running = Running(process=process, children=set())
    watcher = threading.Thread(target=_watch, args=[running, act])
    watcher.start()
    try:
        stdout, stderr = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
        watcher.join()
    _, left = psutil.wait_procs(running.children, timeout=EXIT_S)
    found = [" ".join(command_of(one)) for one in left]
    for one in left:
        one.kill()
    return Ended(code=process.returncode, stdout=stdout, stderr=stderr, left=found)


def _watch(running: Running, act: Callable[[Running], bool]) -> None:
    is_done = False
    while running.process.poll() is None:
        try:
            own = psutil.Process(running.process.pid)
            running.children.update(own.children(recursive=True))
        except psutil.NoSuchProcess:
            return
        is_done = is_done or act(running)
        time.sleep(POLL_S)
