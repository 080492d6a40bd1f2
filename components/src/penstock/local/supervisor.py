"""Run the processes of a LocalDeployment: start, watch, restart, drain, stop.

One loop observes the replicas and applies the actions that `reconcile` returns. Each drain is its
own task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.errors import PenstockError
from penstock.local.deployment import LocalDeployment, Program
from penstock.local.discovery import discovery_state, open_discovery
from penstock.local.drain import SETTLE_S, drain, in_stop_order
from penstock.local.envoy import admin_name
from penstock.local.envoy_drain import READY_S, short_path
from penstock.local.envoy_drain import drain as drain_envoy
from penstock.local.generations import (
    is_complete,
    is_served,
    until_prefill_has_stopped,
    with_generations,
)
from penstock.local.gpus.needs import gpu_needs
from penstock.local.gpus.pool import GpuPool
from penstock.local.health import HealthCheck, Verdict
from penstock.local.launch import RunContext
from penstock.local.ports import LOOPBACK, Ports
from penstock.local.probe import FirstCompletion, Prober
from penstock.local.reconcile import (
    BACKOFF_FIRST_S,
    Action,
    ActionKind,
    DesiredProgram,
    ReplicaState,
    reconcile,
)
from penstock.local.replica import Replica, exited_during_startup, not_ready_in_time
from penstock.local.services import Services
from penstock.local.starter import Endpoint, Starter, accepts
from penstock.local.state import StateDir
from penstock.manifests.deployment import Role

POLL_S = 0.2
# All processes are ready: a completion that still fails after this time will not succeed.
FIRST_COMPLETION_S = 60.0
WAITING_S = 15.0  # between two lines during the start


class Supervisor:
    """Owns every process of one graph. ``gpus`` has reserved what ``deployment`` needs; ``say``
    prints one line for the operator."""

    def __init__(
        self,
        deployment: LocalDeployment,
        state: StateDir,
        services: Services,
        endpoint: Endpoint,
        ports: Ports,
        gpus: GpuPool,
        say: Callable[[str], None],
    ) -> None:
        self.endpoint, self._gpus = endpoint, gpus
        self.deployment, self._programs = deployment, with_generations(deployment.programs)
        self.replicas: list[Replica] = []
        self.ready = False
        self._hold_until = 0.0  # no starts before this time, after one that failed
        self.models: tuple[str, ...] = ()
        self._services_were_ready = False
        self._state, self._services, self._say = state, services, say
        planes, namespace = services.infrastructure, deployment.namespace
        self.discovery = discovery_state(planes, state.discovery, namespace)
        self._discovery = open_discovery(self.discovery)
        self._prober = Prober()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock = asyncio.get_running_loop().time
        context = RunContext(state=state, services=services, namespace=namespace)
        self._starter = Starter(context, endpoint, ports, gpus, self._clock)
        self._health = HealthCheck(endpoint, self._discovery, self._prober, self._clock, say)
        self._first = FirstCompletion(self._prober, self._clock, self._reap)
        self._checking: asyncio.Task[None] | None = None

    # --- life cycle -----------------------------------------------------------------------

    async def start(self, timeout_s: float) -> None:
        """Start everything and return after the first completion.

        StartError when a process exits, or when there is no completion within ``timeout_s``.
        """
        begun, deadline = self._clock(), self._clock() + timeout_s
        announcing = asyncio.create_task(self._announce_waiting(begun, timeout_s))
        try:
            await self._until(self._services_ready, deadline, timeout_s)
            await self._until(self._all_ready, deadline, timeout_s)
            self.models = await self._first.complete_all(
                [self.endpoint.frontend_url(r) for r in self.frontends()] + [self.endpoint.url],
                min(deadline, self._clock() + FIRST_COMPLETION_S),
                disaggregated=self.deployment.disaggregated,
            )
        finally:
            announcing.cancel()
        self.ready = True
        self._checking = asyncio.create_task(self._health.run(lambda: self.replicas))
        self._checking.add_done_callback(self._report_error)

    async def step(self) -> None:
        """Observe once and act; called a few times per second while the graph is up."""
        self._reap()
        await asyncio.gather(*(self._observe(r) for r in self.replicas))
        self._replace_unhealthy()
        serves = await self._new_generation_serves()
        # Nothing is awaited from here on, so that no exit changes what is observed.
        observed = [replica.observed() for replica in self.replicas]
        for action in reconcile(self._desired(), observed, self._clock(), groups_serve=serves):
            self._act(action)
        self._publish_frontends()

    def change(self, deployment: LocalDeployment) -> None:
        """Reconcile towards ``deployment`` from the next step on. MissingToolError, and nothing
        changes, when the machine has too few GPUs for it."""
        programs = with_generations(deployment.programs)
        self._gpus.reserve(gpu_needs(programs, self.replicas))
        self.deployment, self._programs = deployment, programs

    async def stop(self) -> None:
        """Drain everything, frontends first, and wait until nothing runs."""
        self.ready = False  # from now on, an exit is not a crash
        if self._checking is not None:
            self._checking.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for wave in in_stop_order(self.replicas):
            await asyncio.gather(*(self._drain(replica, settle_s=0) for replica in wave))
        await self._prober.close()

    def kill(self) -> None:
        """Kill everything at once, after a second signal."""
        for replica in self.replicas:
            replica.child.kill()

    # --- observing ------------------------------------------------------------------------

    def _reap_if_ready(self) -> None:
        """Handle exited processes now: a worker in discovery gets requests until the next step."""
        if self.ready:
            self._reap()

    def _reap(self) -> None:
        for replica in self.replicas:
            alive = replica.state in (ReplicaState.STARTING, ReplicaState.READY)
            if alive and replica.child.exit_code() is not None:
                if not self.ready:
                    raise exited_during_startup(replica)
                self._end_crashed(replica, f"exited with code {replica.child.exit_code()}")

    def _replace_unhealthy(self) -> None:
        for replica, verdict in self._health.verdicts(self.replicas):
            if verdict is Verdict.HUNG:
                self._end_crashed(replica, "stopped responding and was killed")
            elif verdict is Verdict.TERMINATED:
                self._say(f"{replica.name} was sent SIGTERM: it drains, and another one starts")
                self._begin_drain(replica)
            elif verdict is Verdict.UNREACHABLE and not self._waits_for_other_frontend(replica):
                self._say(f"{replica.name} responds, but requests do not reach it; replacing it")
                self._begin_drain(replica)

    def _waits_for_other_frontend(self, replica: Replica) -> bool:
        """Whether other frontends are not ready: one with an outdated list may still serve."""
        remaining = [r for r in self.frontends() if r is not replica]
        is_frontend = replica.program.role is Role.FRONTEND
        return is_frontend and any(r.state is not ReplicaState.READY for r in remaining)

    def _end_crashed(self, replica: Replica, what: str) -> None:
        """Kill what is left of the replica and its own children, and schedule its restart."""
        replica.child.kill()
        replica.crashed(self._clock())
        wait_s = replica.retry_at - self._clock()
        when = f"in {wait_s:.0f} s" if wait_s > 0 else "now"
        self._say(f"{replica.name} {what}; restarting {when}. Log: {replica.child.log}")
        if replica.worker_id is not None:
            self._spawn(self._discovery.remove(replica.worker_id))

    async def _observe(self, replica: Replica) -> None:
        if replica.state is not ReplicaState.STARTING:
            return
        # The process may have exited during the check.
        if await self._is_ready(replica) and replica.state is ReplicaState.STARTING:
            replica.state = ReplicaState.READY
            self._health.begin(replica)
            if self.ready:
                self._say(f"{replica.name} ready (pid {replica.child.pid})")

    async def _is_ready(self, replica: Replica) -> bool:
        if replica.program.service:
            return accepts(LOOPBACK, replica.probe_port)
        if replica.program.role is Role.FRONTEND:
            base = self.endpoint.frontend_url(replica)
            return await self._prober.frontend_ready(base) and bool(await self._prober.models(base))
        return await self._worker_ready(replica)

    async def _worker_ready(self, replica: Replica) -> bool:
        """Whether the worker has registered `generate`, which it does when its engine has loaded.

        Its /health reports readiness later.
        """
        status = await self._prober.worker(replica.system_port or 0)
        if status is None:
            return False
        replica.worker_id = status.worker_id
        return any(
            i.worker_id == status.worker_id and i.endpoint == "generate"
            for i in await self._discovery.instances() or ()
        )

    async def _new_generation_serves(self) -> bool:
        """Whether the frontends route requests to the new generation.

        True without an old one, and for a new one without a complete model (a pool of 0 replicas).
        """
        workers = [r for r in self.replicas if r.serves and r.state is ReplicaState.READY]
        new = [r for r in workers if not self._is_of_an_old_generation(r)]
        desired = [p for p in self._programs if p.role is not Role.FRONTEND and p.replicas]
        if len(new) == len(workers) or not is_complete({p.role for p in desired}):
            return True
        if len(new) < sum(p.replicas for p in desired):
            return False
        frontends = [r for r in self.frontends() if r.state is ReplicaState.READY]
        urls = [self.endpoint.frontend_url(frontend) for frontend in frontends]
        return await is_served(new, urls, self._discovery, self._prober)

    # --- acting ---------------------------------------------------------------------------

    def _desired(self) -> list[DesiredProgram]:
        """The services, and the graph's programs once the services have been ready."""
        services = [_desired_program(p) for p in self._services.programs]
        self._services_were_ready = self._services_were_ready or self._services_ready()
        if not self._services_were_ready:
            return services
        in_place = self.endpoint.envoy is None
        prefill = tuple(p.name for p in self._programs if p.role is Role.PREFILL)
        return services + [_desired_program(p, in_place, prefill) for p in self._programs]

    def _act(self, action: Action) -> None:
        replica = next((r for r in self.replicas if r.matches(action)), None)
        if action.kind is ActionKind.START:
            if self._clock() >= self._hold_until:
                self._start(action, before=replica)
        elif replica is not None and action.kind is ActionKind.FORGET:
            self._remove(replica)
        elif replica is not None:
            self._say(f"{replica.name} draining")
            self._begin_drain(replica)

    def _remove(self, replica: Replica) -> None:
        self.replicas.remove(replica)
        self._starter.give_back(replica)

    def _start(self, action: Action, before: Replica | None) -> None:
        """``before``: the crashed replica that this one replaces."""
        programs = (*self._services.programs, *self._programs)
        program = next(p for p in programs if p.name == action.program)
        try:
            replica = self._starter.start(program, action.index, before)
        except (OSError, PenstockError) as error:
            self._could_not_start(program, action.index, before, error)
            return
        if replica is None:
            return  # its GPUs belong to a replica that is stopping
        if before is not None:
            self.replicas.remove(before)
            replica.crashes, replica.restarts = before.crashes, before.restarts + 1
        self.replicas.append(replica)
        replica.child.call_at_exit(self._reap_if_ready)
        self.replicas.sort(key=lambda r: (not r.program.service, r.program.name, r.index))

    def _could_not_start(
        self, program: Program, index: int, before: Replica | None, error: Exception
    ) -> None:
        """A failed start (no memory, process or disk) must not stop the replicas that serve."""
        if not self.ready:
            raise error
        if before is not None:
            before.crashed(self._clock())
        self._hold_until = self._clock() + BACKOFF_FIRST_S
        self._say(f"{program.name}.{index} cannot be started: {error}")

    def _begin_drain(self, replica: Replica) -> None:
        replica.drains()
        self._spawn(self._drain(replica))

    async def _drain(self, replica: Replica, settle_s: float = SETTLE_S) -> None:
        replica.drains()
        self._publish_frontends()
        if self.endpoint.envoy is not None and replica.program.role is Role.FRONTEND:
            await asyncio.sleep(1.0)  # Envoy reads the new list
        if replica.program.holds_sigterm and self.ready:
            await self._drain_envoy(replica)
        with_generation = self._is_of_an_old_generation(replica)
        if with_generation and replica.program.role is Role.DECODE:
            await until_prefill_has_stopped(replica, self.replicas)
        ended = await drain(
            replica,
            self._discovery,
            self._prober,
            settle_s=settle_s,
            with_generation=with_generation,
        )
        self._remove(replica)
        if ended.killed:
            self._say(
                f"{replica.name} was killed with {ended.unfinished} unfinished requests after its "
                f"grace period of {replica.program.grace_s:.0f} s"
            )

    async def _drain_envoy(self, replica: Replica) -> None:
        """Wait until another Envoy listens, and the open requests of this one have ended."""
        deadline = self._clock() + READY_S
        while self.ready and self._clock() < deadline and not self._is_replaced(replica):
            await asyncio.sleep(POLL_S)
        with short_path(self._state.scratch) as folder:
            unfinished = await asyncio.to_thread(
                drain_envoy,
                folder / admin_name(replica.probe_port),
                lambda: replica.child.exit_code() is not None,
                replica.program.grace_s,
            )
        if unfinished:
            self._say(
                f"{replica.name} ends with {unfinished} unfinished requests after its grace period "
                f"of {replica.program.grace_s:.0f} s"
            )

    def _is_replaced(self, replica: Replica) -> bool:
        same = [r for r in self.replicas if r.program.name == replica.program.name]
        return any(r.state is ReplicaState.READY for r in same)

    def _is_of_an_old_generation(self, replica: Replica) -> bool:
        return replica.serves and all(p.key != replica.program.key for p in self._programs)

    def _publish_frontends(self) -> None:
        if self.endpoint.envoy is not None:
            ready = [r for r in self.frontends() if r.state is ReplicaState.READY]
            self.endpoint.envoy.list_frontends([r.port or 0 for r in ready])

    def restore(self) -> None:
        """After the state folder was deleted and made again: replace what uses files in it."""
        if self.endpoint.envoy is not None:
            self.endpoint.envoy.program()
        for replica in [r for r in self.replicas if r.program.service]:
            self._begin_drain(replica)

    def frontends(self) -> list[Replica]:
        return [r for r in self.replicas if r.program.role is Role.FRONTEND]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._report_error(task)

    def _report_error(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._say(f"unexpected error: {task.exception()!r}")

    # --- start-up -------------------------------------------------------------------------

    async def _announce_waiting(self, begun: float, timeout_s: float) -> None:
        """A line every 15 s: a model that loads for minutes must not look like a hang."""
        while True:
            await asyncio.sleep(WAITING_S)
            waiting = [r.name for r in self.replicas if r.state is not ReplicaState.READY]
            names = ", ".join(waiting) or "the first completion"
            elapsed = self._clock() - begun
            self._say(f"waiting for {names} ({elapsed:.0f} s of {timeout_s:.0f} s)")

    async def _until(self, done: Callable[[], bool], deadline: float, timeout_s: float) -> None:
        while True:
            await self.step()
            if done():
                return
            if self._clock() > deadline:
                raise not_ready_in_time(self.replicas, timeout_s)
            await asyncio.sleep(POLL_S / 2)

    def _services_ready(self) -> bool:
        services = [r for r in self.replicas if r.program.service]
        return len(services) == sum(p.replicas for p in self._services.programs) and all(
            r.state is ReplicaState.READY for r in services
        )

    def _all_ready(self) -> bool:
        count = sum(p.replicas for p in self.deployment.programs)
        graph = [r for r in self.replicas if not r.program.service]
        return len(graph) == count and all(r.state is ReplicaState.READY for r in graph)


def _desired_program(
    program: Program, frontends_in_place: bool = False, after: tuple[str, ...] = ()
) -> DesiredProgram:
    """``after``: the prefill programs; decode workers without them would attract requests."""
    frontend = program.role is Role.FRONTEND
    return DesiredProgram(
        program=program.name,
        replicas=program.replicas,
        key=program.key,
        # The Envoys share a port.
        surge=program.holds_sigterm
        or (not program.service and not (frontend and frontends_in_place)),
        group="" if frontend or program.service else "workers",
        after=after if program.role is Role.DECODE else (),
    )
