"""`penstock up`: start a graph, apply edits of its file while it runs, drain it at the end.

Owns the state folder from lock to release. `cli.up` calls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from penstock.errors import MissingToolError, PenstockError
from penstock.gateway.envoy import Address
from penstock.graph.gateway import GatewaySection
from penstock.local.deployment import LocalDeployment, Overrides
from penstock.local.envoy import Envoy
from penstock.local.events import EventLog
from penstock.local.file_watch import FileWatch
from penstock.local.gateway import NAME as GATEWAY
from penstock.local.gateway import GatewayOptions, LocalGateway, Places
from penstock.local.gateway import fixed_setting as fixed_gateway_setting
from penstock.local.generations import with_generations
from penstock.local.gpus.needs import gpu_needs
from penstock.local.gpus.pool import GpuPool
from penstock.local.machine import Machine
from penstock.local.ports import LOOPBACK, Ports, reserved
from penstock.local.predicted_timing import TimingSource
from penstock.local.prepare import Preparer
from penstock.local.process import leftover_processes, terminate
from penstock.local.services import Services, envoy_binary, plan_services, require_reachable
from penstock.local.starter import Endpoint
from penstock.local.state import StateDir, reservations
from penstock.local.state_file import LocalState, Phase
from penstock.local.supervisor import POLL_S, Supervisor
from penstock.local.tracing import receiving
from penstock.manifests.deployment import Role

Say = Callable[[str], None]
Show = Callable[[LocalState], None]
WhenReady = Callable[[str, str, Say], Coroutine[Any, Any, None]]  # endpoint, model


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """Options of `penstock up`."""

    sets: tuple[str, ...] = ()
    overrides: Overrides = field(default_factory=Overrides)
    host: str = LOOPBACK
    """Address of the OpenAI endpoint; everything else stays on loopback."""
    start_timeout_s: float = 300.0
    is_checked: bool = True
    timing: TimingSource | None = None
    """Predicted step times for mockers; None: the mocker's own."""
    is_traced: bool = False
    """Record traces even if the graph has no `tracing`."""
    when_ready: WhenReady | None = None
    """Runs next to the graph from the first completion until the graph stops."""
    gateway: GatewayOptions | None = None
    """The gateway then listens at ``host`` and the graph's port, and the endpoint on loopback."""


class Up:
    """One run. ``say`` prints a line, ``show`` displays the state after each step."""

    def __init__(
        self, path: Path, options: UpOptions, machine: Machine, say: Say, show: Show
    ) -> None:
        self._path, self._options, self._machine = path, options, machine
        self._say, self._show = say, show
        self._state = StateDir(path)
        self._rejected_edit: tuple[str, ...] = ()
        self._printed: set[str] = set()
        self._edit: asyncio.Task[LocalDeployment] | None = None
        self._phase = Phase.STARTING
        self._stop_signal = 0
        self._gateway: LocalGateway | None = None
        self._is_recorded = True  # the state file has the current state
        self._events = EventLog(self._state.path)

    def run(self) -> int:
        """Run until a signal; return 0 after SIGTERM (`penstock down`), 130 after Ctrl-C."""
        self._state.acquire()
        try:
            self._watch = FileWatch(self._path)  # before the first read: misses no save
            options = self._options
            preparer = Preparer(
                self._path,
                options.sets,
                self._machine,
                options.overrides,
                is_checked=options.is_checked,
                timing=options.timing,
                has_gateway=options.gateway is not None,
            )
            deployment = preparer.prepare(starting=True)
            self._clean_up_after_a_kill()
            code = asyncio.run(self._serve(deployment, preparer))
        finally:
            # An engine's own children may have left its process group.
            terminate(leftover_processes(self._state.path), grace_s=1)
            self._state.clear()
            self._state.release()
        self._say(f"{self._path} is down")
        return code

    def _clean_up_after_a_kill(self) -> None:
        count = terminate(leftover_processes(self._state.path), grace_s=5)
        if count:
            self._say(f"stopped {count} processes that a killed penstock left behind")

    async def _serve(self, deployment: LocalDeployment, preparer: Preparer) -> int:
        ports = Ports()
        port = deployment.port or ports.free()
        with reserved(self._options.host, port):
            return await self._serve_at(port, ports, deployment, preparer)

    async def _serve_at(
        self, port: int, ports: Ports, deployment: LocalDeployment, preparer: Preparer
    ) -> int:
        services = plan_services(deployment.infrastructure, self._state, ports)
        require_reachable(deployment.infrastructure)
        # Before the state is cleared, like every check that may stop the start.
        gpus = GpuPool(self._machine.read_gpus, reservations(), str(self._path))
        gpus.reserve(gpu_needs(with_generations(deployment.programs), ()))
        inner = ports.free() if self._options.gateway else port
        self._gateway = self._with_gateway(deployment, port, inner)
        self._state.prepare()  # only now: a start that fails keeps the logs of the last run
        self._events.begin()
        services, endpoint = self._with_endpoint(deployment, services, inner)
        with receiving(self._state, enabled=self._is_traced(deployment)) as traces_url:
            services = replace(services, traces_url=traces_url)
            supervisor = Supervisor(
                deployment, self._state, services, endpoint, ports, gpus, self._say
            )
            return await self._run_until_stopped(supervisor, preparer, gpus)

    async def _run_until_stopped(
        self, supervisor: Supervisor, preparer: Preparer, gpus: GpuPool
    ) -> int:
        deployment, endpoint = supervisor.deployment, supervisor.endpoint
        stopping = self._listen_for_signals(supervisor)
        self._say_notes(deployment, endpoint)
        try:
            await self._first_start(supervisor, preparer, stopping)
            if not stopping.is_set():
                self._say_ready(endpoint)
                async with self._when_ready(supervisor):
                    await self._follow(supervisor, preparer, stopping)
        finally:
            self._phase = Phase.DRAINING
            self._publish(supervisor)
            await supervisor.stop()
            gpus.close()
            if self._gateway is not None:
                self._gateway.stop()
        return 130 if self._stop_signal == signal.SIGINT else 0

    def _is_traced(self, deployment: LocalDeployment) -> bool:
        return self._options.is_traced or deployment.is_traced

    def _with_gateway(
        self, deployment: LocalDeployment, port: int, endpoint_port: int
    ) -> LocalGateway | None:
        if self._options.gateway is None:
            return None
        places = Places(
            listen=Address(host=self._options.host, port=port),
            endpoint=Address(host=LOOPBACK, port=endpoint_port),
            folder=self._state.files / GATEWAY,
            log=self._state.log(GATEWAY),
            state=self._state.path,
        )
        section = deployment.gateway
        return LocalGateway(deployment.name, self._options.gateway, places, section, self._say)

    def _say_ready(self, endpoint: Endpoint) -> None:
        if self._gateway is None:
            self._say(f"ready: {endpoint.url}/v1")
            return
        self._say(f"gateway: {self._gateway.summary()}")
        self._say(f"ready: {self._gateway.url}/v1 (without a key: {endpoint.url}/v1)")

    @contextlib.asynccontextmanager
    async def _when_ready(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Run the caller's task next to the graph; its error is reported and stops nothing else."""
        when_ready = self._options.when_ready
        if when_ready is None:
            yield
            return
        url = f"{supervisor.endpoint.url}/v1"
        task = asyncio.create_task(when_ready(url, supervisor.models[0], self._say))
        task.add_done_callback(self._report_error)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _report_error(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._say(f"unexpected error: {task.exception()!r}")

    def _say_notes(self, deployment: LocalDeployment, endpoint: Endpoint) -> None:
        """Print the notes that were not printed before: an edit can bring a new substitute."""
        notes = list(deployment.notes)
        frontends = sum(p.replicas for p in deployment.programs if p.role is Role.FRONTEND)
        if endpoint.envoy is None and frontends > 1:
            notes.append(
                f"endpoint: the first of {frontends} frontends; to balance over all of them, run "
                "`penstock tools env install envoy`"
            )
        for note in notes:
            if note not in self._printed:
                self._printed.add(note)
                self._say(note)

    def _with_endpoint(
        self, deployment: LocalDeployment, services: Services, port: int
    ) -> tuple[Services, Endpoint]:
        """Add the endpoint: Envoy if it is installed, else the first frontend."""
        host = LOOPBACK if self._gateway else self._options.host
        frontend = next(p.name for p in deployment.programs if p.role is Role.FRONTEND)
        binary = envoy_binary(self._machine.environments)
        if binary is None and not ip_address(host).is_loopback:
            raise MissingToolError(
                f"{host} is not a loopback address: other machines could read the "
                "frontend's metrics and change its settings",
                place="--host",
                fix="Run `penstock tools env install envoy`: Envoy exposes only /v1 and /health.",
            )
        if binary is None:
            return services, Endpoint(host=host, port=port, frontend=frontend)
        retries = (deployment.gateway if self._gateway else GatewaySection()).retries
        hosts = self._options.overrides.hosts
        grace_s = max(p.grace_s for p in deployment.programs if p.role is Role.FRONTEND)
        folder = self._state.files / "envoy"
        envoy = Envoy(binary, folder, host, port, retries, hosts, grace_s)
        services = replace(services, programs=(*services.programs, envoy.program()))
        return services, Endpoint(host=host, port=port, frontend=frontend, envoy=envoy)

    def _listen_for_signals(self, supervisor: Supervisor) -> asyncio.Event:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            if stopping.is_set():
                self._say("killing all processes")
                supervisor.kill()
                return
            self._stop_signal = number
            stopping.set()
            self._say("draining; a second signal kills all processes")

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        return stopping

    async def _first_start(
        self, supervisor: Supervisor, preparer: Preparer, stopping: asyncio.Event
    ) -> None:
        """Start the graph, or stop waiting at a signal. Edits are already applied."""
        start = asyncio.create_task(self._start_all(supervisor))
        stop = asyncio.create_task(stopping.wait())
        while not start.done() and not stop.done():
            self._follow_edits(supervisor, preparer)
            self._publish(supervisor)
            await asyncio.wait({start, stop}, timeout=POLL_S, return_when="FIRST_COMPLETED")
        stop.cancel()
        if not start.done():
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            return
        start.result()
        self._phase = Phase.READY
        self._publish(supervisor)

    async def _start_all(self, supervisor: Supervisor) -> None:
        """Start the graph, then the gateway, and send a completion through it."""
        await supervisor.start(self._options.start_timeout_s)
        if self._gateway is not None:
            await self._gateway.start(disaggregated=supervisor.deployment.disaggregated)

    async def _follow(
        self, supervisor: Supervisor, preparer: Preparer, stopping: asyncio.Event
    ) -> None:
        while not stopping.is_set():
            self._follow_edits(supervisor, preparer)
            self._restore(supervisor)
            await supervisor.step()
            if self._gateway is not None:
                await self._gateway.step()
            self._publish(supervisor)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), POLL_S)

    def _restore(self, supervisor: Supervisor) -> None:
        try:
            if not self._state.restore():
                return
        except (OSError, PenstockError):  # a full disk, or another `up`: try again
            return
        supervisor.restore()
        if self._gateway is not None:
            self._gateway.restore()
        self._say(
            f"{self._state.path} or a part of it was deleted while the graph was up, and made "
            "again; replacing the processes that need its files. Requests fail meanwhile"
        )

    def _follow_edits(self, supervisor: Supervisor, preparer: Preparer) -> None:
        """Prepare a saved edit in a thread, and apply it when it is ready."""
        if self._edit is None:
            if self._watch.saved(time.monotonic()):
                self._edit = asyncio.create_task(asyncio.to_thread(preparer.prepare))
        elif self._edit.done():
            edit, self._edit = self._edit, None
            self._apply(supervisor, edit)

    def _apply(self, supervisor: Supervisor, edit: asyncio.Task[LocalDeployment]) -> None:
        """Apply the edit, or reject it and leave the running graph unchanged."""
        error = edit.exception()
        if error is not None:
            known = isinstance(error, PenstockError)
            self._reject_edit(str(error) if known else f"unexpected error: {error!r}")
            return
        deployment = edit.result()
        fixed = fixed_setting(supervisor.deployment, deployment)
        if not self._options.is_traced and supervisor.deployment.is_traced != deployment.is_traced:
            fixed = "tracing"
        if not fixed and self._gateway is not None:
            fixed = fixed_gateway_setting(supervisor.deployment.gateway, deployment.gateway)
        if fixed:
            self._reject_edit(
                f"{fixed} cannot change while the graph is up. "
                "Fix: Run `penstock down`, then `penstock up`."
            )
            return
        changes = change_lines(supervisor.deployment, deployment)
        replaced = replaced_programs(supervisor.deployment, deployment)
        try:
            supervisor.change(deployment)
        except MissingToolError as error:
            self._reject_edit(str(error))
            return
        self._rejected_edit = ()
        for line in changes:
            self._say(line)
        for name in replaced:
            self._events.replaces(name)
        if self._gateway is not None:
            self._gateway.change(deployment.gateway)
        self._say_notes(deployment, supervisor.endpoint)

    def _reject_edit(self, reason: str) -> None:
        self._rejected_edit = tuple(reason.splitlines())
        self._say(f"edit rejected, the running graph is unchanged:\n{reason}")

    def _publish(self, supervisor: Supervisor) -> None:
        state = LocalState(
            pid=os.getpid(),
            source=str(self._path.resolve()),
            sets=self._options.sets,
            phase=self._phase,
            endpoint=f"{supervisor.endpoint.url}/v1",
            gateway=self._gateway.status() if self._gateway else None,
            models=supervisor.models,
            envoy=supervisor.endpoint.envoy is not None,
            notes=supervisor.deployment.notes,
            rejected_edit=self._rejected_edit,
            desired_replicas={p.name: p.replicas for p in supervisor.deployment.programs},
            discovery=supervisor.discovery,
            replicas=tuple(replica.status() for replica in supervisor.replicas),
        )
        try:
            self._state.write(state)
            self._is_recorded = True
        except OSError as error:  # a full disk must not stop the graph
            if self._is_recorded:
                self._say(
                    f"{self._state.state_file} cannot be written: {error.strerror}. The graph "
                    "serves, but `penstock status` shows an old state. Fix: Free space."
                )
            self._is_recorded = False
        self._events.observe(state)
        self._show(state)


def fixed_setting(old: LocalDeployment, new: LocalDeployment) -> str:
    """The changed setting that is fixed while the graph runs; empty when there is none."""
    if old.name != new.name:
        return "the graph's name"
    if old.port != new.port:
        return "frontend.port"
    if old.infrastructure != new.infrastructure:
        return "infrastructure"
    return ""


def replaced_programs(old: LocalDeployment, new: LocalDeployment) -> list[str]:
    """The programs whose configuration differs."""
    both = ((old.program(program.name), program) for program in new.programs)
    return [after.name for before, after in both if before and before.key != after.key]


def change_lines(old: LocalDeployment, new: LocalDeployment) -> list[str]:
    """What changes, for the reader of the terminal."""
    lines = []
    for program in new.programs:
        before = old.program(program.name)
        if before is None:
            lines.append(f"{program.name}: added, {program.replicas} replicas")
            continue
        if before.key != program.key:
            lines.append(f"{program.name}: configuration changed, replacing all replicas")
        if before.replicas != program.replicas:
            lines.append(f"{program.name}: {before.replicas} → {program.replicas} replicas")
    removed = {p.name for p in old.programs} - {p.name for p in new.programs}
    return lines + [f"{name}: removed" for name in sorted(removed)]
