"""Runs `penstock top --web` next to `penstock up --page`, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from penstock.local.process import end_with_parent
from penstock.local.up import Say, WhenReady


def beside(graph: Path, port: int) -> WhenReady:
    """What `up` runs from the first completion on: its errors are printed, and stop no graph."""

    async def run(_endpoint: str, _model: str, say: Say) -> None:
        command = [sys.executable, "-P", "-m", "penstock.cli.main", "top", "--web", str(graph)]
        child = await asyncio.create_subprocess_exec(
            *[*end_with_parent(), *command, "--port", str(port)],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches `up`, which ends it
        )
        assert child.stdout is not None
        try:
            while line := await child.stdout.readline():
                say(line.decode("utf-8", "replace").rstrip().removesuffix(" (Ctrl-C stops it)"))
            say(f"the page has ended with exit code {await child.wait()}")
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.terminate()
                await child.wait()

    return run
