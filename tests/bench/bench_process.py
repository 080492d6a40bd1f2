"""`penstock bench` as a process of its own, which a test ends, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import psutil

from tests.support.processes import command_of
from tests.support.waiting import wait_for

LONGEST_S = 120.0
EXIT_S = 10.0  # in which the kernel removes processes that were killed


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    left: Sequence[str]
    """Commands of processes that it started and that still run."""


@dataclass(kw_only=True)
class Running:
    process: subprocess.Popen[str]
    children: Sequence[psutil.Process] = field(default_factory=list)
    """All that it has started when the last `wait_for` returned."""

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Until the condition is true, or the process has ended."""
        process = self.process
        wait_for(lambda: condition() or process.poll() is not None, what, limit_s=LONGEST_S)
        with contextlib.suppress(psutil.NoSuchProcess):
            self.children = psutil.Process(process.pid).children(recursive=True)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


def run_process(
    arguments: Sequence[str], act: Callable[[Running], object], **environ: str
) -> Ended:
    """``act`` is called in a thread while the process runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    running = Running(process=process)
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act, running)
        try:
            stdout, stderr = process.communicate(timeout=LONGEST_S)
        finally:
            process.kill()
        acting.result()
    _, left = psutil.wait_procs(running.children, timeout=EXIT_S)
    commands = [" ".join(command_of(each)) for each in left]
    for each in left:
        each.kill()
    return Ended(code=process.returncode, stdout=stdout, stderr=stderr, left=commands)
