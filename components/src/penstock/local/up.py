"""`penstock up`: one graph from file to endpoint, followed while it is edited, then drained.

Owns the graph's state folder from lock to release; `cli.up` calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.local.envoy import Envoy
from penstock.local.interpret import Choice
from penstock.local.launch import LOOPBACK
from penstock.local.machine import Machine
from penstock.local.plan import LocalPlan
from penstock.local.ports import Ports, require_free
from penstock.local.prepare import Prepared, Preparer
from penstock.local.process import end, leftovers
from penstock.local.services import Services, envoy_binary, plan_services
from penstock.local.starter import Endpoint
from penstock.local.state import StateDir
from penstock.local.supervisor import LOOK_S, Supervisor
from penstock.local.watch import FileWatch


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """``host`` is where the OpenAI endpoint listens; everything else stays on loopback."""

    sets: tuple[str, ...] = ()
    choice: Choice = field(default_factory=Choice)
    host: str = LOOPBACK
    start_timeout_s: float = 300.0


Say = Callable[[str], None]
Show = Callable[[dict[str, Any]], None]


class Up:
    """One run. ``say`` takes lines for the operator, ``show`` the state after each look."""

    def __init__(
        self, path: Path, options: UpOptions, machine: Machine, say: Say, show: Show
    ) -> None:
        self._path, self._options, self._machine = path, options, machine
        self._say, self._show = say, show
        self._state = StateDir(path)
        self._refused: list[str] = []
        self._phase = "starting"
        self._stop_signal = 0

    def run(self) -> int:
        """Until a signal: 0 after SIGTERM (`penstock down`), 130 after Ctrl-C."""
        preparer = Preparer(self._path, self._options.sets, self._machine, self._options.choice)
        prepared = preparer.prepare()
        self._state.acquire()
        try:
            self._clean_up_after_a_kill()
            self._state.prepare()
            return asyncio.run(self._serve(prepared, preparer))
        finally:
            self._state.clear()
            self._state.release()

    def _clean_up_after_a_kill(self) -> None:
        count = end(leftovers(self._state.path), grace_s=5)
        if count:
            self._say(f"ended {count} processes that an earlier penstock left behind")

    async def _serve(self, prepared: Prepared, preparer: Preparer) -> int:
        plan = prepared.plan
        ports = Ports()
        port = plan.port or ports.free()
        require_free(self._options.host, port, "frontend.port")
        services, endpoint = self._around(plan, ports, port)
        supervisor = Supervisor(plan, self._state, services, endpoint, ports, self._say)
        stopping = self._listen_for_signals(supervisor)
        for note in plan.notes:
            self._say(note)
        if endpoint.envoy is None and self._frontends(plan) > 1:
            self._say(
                f"endpoint: the first of {self._frontends(plan)} frontends; for one address in "
                "front of all: penstock env install envoy"
            )
        try:
            await self._first_start(supervisor, stopping)
            if not stopping.is_set():
                self._say(f"ready: {endpoint.url}/v1")
                await self._follow(supervisor, preparer, stopping)
        finally:
            await self._drain(supervisor)
        return 130 if self._stop_signal == signal.SIGINT else 0

    def _around(self, plan: LocalPlan, ports: Ports, port: int) -> tuple[Services, Endpoint]:
        services = plan_services(plan.infrastructure, self._state, ports)
        binary = envoy_binary(self._machine.environments)
        host = self._options.host
        if binary is None:
            return services, Endpoint(host=host, port=port)
        envoy = Envoy(binary, self._state.files / "envoy", host, port)
        programs = (*services.programs, envoy.program())
        services = Services(
            programs=programs,
            infrastructure=services.infrastructure,
            broker_url=services.broker_url,
        )
        return services, Endpoint(host=host, port=port, envoy=envoy)

    @staticmethod
    def _frontends(plan: LocalPlan) -> int:
        return sum(p.replicas for p in plan.programs if p.role == "frontend")

    def _listen_for_signals(self, supervisor: Supervisor) -> asyncio.Event:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            if stopping.is_set():
                self._say("ending everything now")
                supervisor.kill()
                return
            self._stop_signal = number
            self._say("draining; once more to end everything now")
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        return stopping

    async def _first_start(self, supervisor: Supervisor, stopping: asyncio.Event) -> None:
        """The start, given up when a signal comes first."""
        start = asyncio.create_task(supervisor.start(self._options.start_timeout_s))
        stop = asyncio.create_task(stopping.wait())
        while not start.done() and not stop.done():
            self._publish(supervisor)
            await asyncio.wait({start, stop}, timeout=LOOK_S, return_when="FIRST_COMPLETED")
        stop.cancel()
        if not start.done():
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            return
        start.result()
        self._phase = "ready"
        self._publish(supervisor)

    async def _follow(
        self, supervisor: Supervisor, preparer: Preparer, stopping: asyncio.Event
    ) -> None:
        watch = FileWatch(self._path)
        while not stopping.is_set():
            if watch.saved(time.monotonic()):
                await self._apply_edit(supervisor, preparer)
            await supervisor.step()
            self._publish(supervisor)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_S)

    async def _apply_edit(self, supervisor: Supervisor, preparer: Preparer) -> None:
        """The edit, or its refusal: then the graph runs on as it was."""
        try:
            prepared = await asyncio.to_thread(preparer.prepare)
        except PenstockError as error:
            self._refused = [str(p) for p in error.problems]
            self._say("edit refused, the graph runs on as it was:\n" + str(error))
            return
        fixed = _cannot_change(supervisor.plan, prepared.plan)
        if fixed:
            self._refused = [f"{fixed} cannot change while the graph is up"]
            self._say(f"edit refused: {self._refused[0]}. Fix: penstock down, then up again")
            return
        self._refused = []
        for line in _changes(supervisor.plan, prepared.plan):
            self._say(line)
        supervisor.change(prepared.plan)

    async def _drain(self, supervisor: Supervisor) -> None:
        self._phase = "draining"
        self._publish(supervisor)
        await supervisor.stop()

    def _publish(self, supervisor: Supervisor) -> None:
        state = {
            "pid": os.getpid(),
            "source": str(self._path.resolve()),
            "sets": list(self._options.sets),
            "phase": self._phase,
            "endpoint": f"{supervisor.endpoint.url}/v1",
            "models": list(supervisor.models),
            "envoy": supervisor.endpoint.envoy is not None,
            "notes": list(supervisor.plan.notes),
            "refused": self._refused,
            "wanted": {p.name: p.replicas for p in supervisor.plan.programs},
            "discovery": supervisor.discovery(),
            "replicas": [replica.report() for replica in supervisor.replicas],
        }
        self._state.write(state)
        self._show(state)


def _cannot_change(old: LocalPlan, new: LocalPlan) -> str:
    """What an edit may not touch while the graph runs, empty when it does not."""
    if old.name != new.name:
        return "the graph's name"
    if old.port != new.port:
        return "frontend.port"
    if old.infrastructure != new.infrastructure:
        return "infrastructure"
    return ""


def _changes(old: LocalPlan, new: LocalPlan) -> list[str]:
    lines = []
    for program in new.programs:
        before = old.program(program.name)
        if before is None:
            lines.append(f"{program.name}: new, {program.replicas} replicas")
            continue
        if before.key != program.key:
            lines.append(f"{program.name}: configuration changed, all its replicas change over")
        if before.replicas != program.replicas:
            lines.append(f"{program.name}: {before.replicas} → {program.replicas} replicas")
    removed = {p.name for p in old.programs} - {p.name for p in new.programs}
    return lines + [f"{name}: removed" for name in sorted(removed)]
