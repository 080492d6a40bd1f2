"""Runs the server of the page in the environment `page`, and sends it each change of the graph.

What the browser asks for is done here: edits, so that without `--allow-edit` no request can change
a file, and reading the traces. `up --page` runs it in a process of its own (`page_of_up`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.environments.paths import require_python
from penstock.errors import GraphError, PenstockError, PortInUseError, StartError
from penstock.graph.edit import edit_replicas
from penstock.graph.text_file import read_text_file
from penstock.live.model import STOPPED, LiveSnapshot
from penstock.live.page.view import RequestReader, View, difference, point_of, view_of
from penstock.live.source import STATE_S
from penstock.local.control import edited, require_not_overridden
from penstock.local.ports import LOOPBACK, Ports, require_free
from penstock.local.process import end_with_parent
from penstock.manifests.source import is_manifest

if TYPE_CHECKING:
    from penstock.local.up import Say, WhenReady

NAME = "page"
SIZE = "82 MB"  # of the installation
CHILD = Path(__file__).with_name("child.py")
NO_CHAT = "No endpoint is known. For the chat, start the page with --url URL."
POINT_S = 2.0  # between two points of the charts
START_S = 60.0  # NiceGUI starts in 2 s, more on a busy machine


class Source(Protocol):
    """What the page shows: a `LiveGraph`, or the source of a benchmark."""

    @property
    def chat_url(self) -> str | None: ...

    async def snapshot(self) -> LiveSnapshot: ...


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options of `penstock top --web`."""

    graph: Path
    """The file that edits change."""
    port: int
    """0: any free port."""
    allow_edit: bool
    interval_s: float = STATE_S
    """Between two snapshots."""
    requests: RequestReader | None = None
    """Reads the recorded requests, in a thread; None: the page has no panel for them."""


def require_environment() -> Path:
    """The environment's Python; MissingToolError if it is not installed."""
    return require_python(NAME, "NiceGUI, which serves the page, is not installed", SIZE)


async def serve(source: Source, options: PageOptions, ready: Callable[[str], None]) -> None:
    """Serve until the graph stops or this task is cancelled. ``ready`` gets the page's URL.

    PortInUseError if the port is taken; StartError if the server does not start or ends.
    """
    python = require_environment()
    port = options.port or Ports().free()
    require_free_port(port, "--port")
    child = await _start(python, port, options)
    server = _Server(child, options)
    reading = asyncio.create_task(server.read())
    try:
        await server.wait_ready(reading)
        ready(f"http://{LOOPBACK}:{port}/")
        await server.follow(source, reading)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            await child.wait()


def require_free_port(port: int, option: str) -> None:
    """PortInUseError, which names the option, if the port is taken; 0 is any free port."""
    try:
        require_free(LOOPBACK, port)
    except PortInUseError as error:
        message = error.problems[0].message
        fix = "Choose another port, or omit the option: any free port is then used."
        raise PortInUseError(message, place=option, fix=fix) from None


async def _start(python: Path, port: int, options: PageOptions) -> asyncio.subprocess.Process:
    words = [str(python), "-P", str(CHILD), "--port", str(port)]
    words += ["--allow-edit"] if options.allow_edit else []
    words += ["--requests"] if options.requests else []
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("NICEGUI_", "PYTEST", "PYTHON"))
    }
    return await asyncio.create_subprocess_exec(
        *[*end_with_parent(), *words],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,  # of a line; the child limits what browsers can put into one
        env=env | {"PYTHONWARNINGS": "ignore"},
        start_new_session=True,  # Ctrl-C reaches penstock, which ends the server
    )


class _Server:
    """The child process: one JSON object per line in both directions."""

    def __init__(self, child: asyncio.subprocess.Process, options: PageOptions) -> None:
        self._child, self._options = child, options
        self._view: View = {}
        self._is_ready = asyncio.Event()
        self._replies: set[asyncio.Task[None]] = set()

    async def wait_ready(self, reading: asyncio.Task[None]) -> None:
        waiting = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait({waiting, reading}, timeout=START_S, return_when="FIRST_COMPLETED")
        waiting.cancel()
        if not self._is_ready.is_set():
            raise _ended("the server of the page did not start")

    async def follow(self, source: Source, reading: asyncio.Task[None]) -> None:
        """Send changes until the graph has stopped; the page then shows this, and stays."""
        loop = asyncio.get_running_loop()
        last_point, due = float("-inf"), loop.time()
        while not reading.done():
            latest = await source.snapshot()
            view = view_of(latest)
            message = difference(self._view, view)
            self._view = view
            if message:
                message["chat_url"] = source.chat_url
                has_chat = source.chat_url is not None or latest.phase == STOPPED
                message["chat_note"] = "" if has_chat else NO_CHAT
            if loop.time() - last_point >= POINT_S and latest.phase != STOPPED:
                message["point"], last_point = point_of(latest), loop.time()
            if message:
                await self._send(message)
            due = max(due + self._options.interval_s, loop.time())  # a late update delays no other
            await asyncio.sleep(due - loop.time())
        raise _ended("the server of the page has ended")

    async def read(self) -> None:
        """Until the child ends."""
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a library has printed something
            if message.get("ready"):
                self._is_ready.set()
            elif "ask" in message:
                task = asyncio.create_task(self._reply(message))
                self._replies.add(task)
                task.add_done_callback(self._replies.discard)

    async def _reply(self, message: dict[str, Any]) -> None:
        try:
            reply = await (self._edit(message) if "pool" in message else self._read(message))
        except (PenstockError, OSError) as problem:
            reply = {"error": str(problem)}
        except Exception as problem:  # noqa: BLE001  else the browser waits for its time limit
            traceback.print_exc()
            reply = {"error": f"unexpected error: {problem!r}"}
        await self._send({**reply, "reply": message["ask"]})

    async def _edit(self, message: dict[str, Any]) -> dict[str, Any]:
        if not self._options.allow_edit:
            return {"error": "the page was started without --allow-edit"}
        changes = {str(message["pool"]): int(message["replicas"])}
        await asyncio.to_thread(scale, self._options.graph, changes)
        return {}

    async def _read(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._options.requests is None:
            return {"error": "the page has no traces"}
        names = {str(int(key, 16)): name for key, name in self._view.get("worker_ids", {}).items()}
        return await asyncio.to_thread(self._options.requests, message, names)

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            await self._child.stdin.drain()


def _ended(message: str) -> StartError:
    return StartError(message, fix="Read its output above.")


def page_of_up(graph: Path, port: int) -> WhenReady:
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


def scale(path: Path, changes: Mapping[str, int]) -> None:
    """Return once `up` has taken the edit over. ``changes``: replicas by pool.

    GraphError if the graph would be invalid, if a `--set` of `up` overrides the change, or if the
    file is a DGD manifest; the file is then unchanged.
    """
    require_not_overridden(path, changes)
    if is_manifest(read_text_file(path)):
        fix = "Edit its replicas; a running `up` applies the change."
        raise GraphError("is a DGD manifest", file=str(path), fix=fix)
    edited(path, lambda: edit_replicas(path, changes), changes)
