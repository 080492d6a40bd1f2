"""Finds processes that run but do not serve: suspended, hung, or missing in discovery.

The supervisor detects exits. This module probes the processes that were ready, once a second, and
says which of them must be replaced.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import psutil

from penstock.local.discovery import Discovery, Instance
from penstock.local.envoy_drain import is_terminated
from penstock.local.generations import is_complete
from penstock.local.ports import LOOPBACK
from penstock.local.probe import Prober
from penstock.local.replica import Health, Replica
from penstock.local.starter import Endpoint
from penstock.manifests.deployment import Role

INTERVAL_S = 1.0
# A process that computes may respond soon: a frontend that reads a long prompt is not dead.
BUSY_HUNG_S = 30.0
BUSY_SHARE = 0.5  # of one core, since the last check
# A process that SIGSTOP has stopped is not merely slow, so there is nothing to wait for.
STOPPED_S = 2.0
# If no process responds, the machine is probably suspended or overloaded: wait longer.
ALL_HUNG_S = 30.0
NOT_FOUND_S = 5.0
# After a longer time between two checks, penstock itself did not run.
SUSPENDED_S = 6.0


class Verdict(Enum):
    SERVES = auto()
    HUNG = auto()
    UNREACHABLE = auto()  # it responds, but requests do not reach it
    TERMINATED = auto()  # it was sent SIGTERM, which is blocked and pending


def _verdict(health: Health, now: float, hung_s: float) -> Verdict:
    if health.stopped_at is not None:
        return Verdict.HUNG if now - health.stopped_at > hung_s else Verdict.SERVES
    if not health.responds:
        return Verdict.HUNG if now - health.responded > hung_s else Verdict.SERVES
    if not health.is_found and now - health.found_at > NOT_FOUND_S:
        return Verdict.UNREACHABLE
    return Verdict.SERVES


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """What the kernel knows of a process."""

    cpu_s: float = 0.0
    is_stopped: bool = False
    """SIGSTOP has stopped it; a debugger's stop is another state."""
    is_terminated: bool = False
    """A SIGTERM is pending, which it has blocked."""


def process_state(replica: Replica) -> ProcessState:
    """Of the replica's process; the defaults if it has ended."""
    try:
        process = psutil.Process(replica.child.pid)
        times, status = process.cpu_times(), process.status()
    except psutil.Error:
        return ProcessState()
    return ProcessState(
        cpu_s=float(times.user + times.system),
        is_stopped=status == psutil.STATUS_STOPPED,
        is_terminated=replica.program.holds_sigterm and is_terminated(replica.child.pid),
    )


class HealthCheck:
    """Probes replicas and updates their `health`. ``say`` prints one line for the operator."""

    def __init__(
        self,
        endpoint: Endpoint,
        discovery: Discovery,
        prober: Prober,
        clock: Callable[[], float],
        say: Callable[[str], None],
        state_of: Callable[[Replica], ProcessState] = process_state,
    ) -> None:
        self._endpoint, self._discovery, self._prober = endpoint, discovery, prober
        self._clock, self._say, self._state_of = clock, say, state_of
        self._last: float | None = None  # the last progress of a check
        self._failure = ""

    def verdicts(self, replicas: Sequence[Replica]) -> list[tuple[Replica, Verdict]]:
        """The verdict on each replica that was ready; none when there was no recent check."""
        now = self._clock()
        if self._last is None or now - self._last > SUSPENDED_S:
            return []
        known = [
            (replica, replica.health, self._state_of(replica))
            for replica in replicas
            if replica.health is not None
        ]
        for _, health, state in known:
            if not state.is_stopped:
                health.stopped_at = None
            elif health.stopped_at is None:
                health.stopped_at = now
        any_responds = any(
            health.responds and health.stopped_at is None
            for replica, health, _ in known
            if not replica.program.service
        )

        def verdict(replica: Replica, health: Health, state: ProcessState) -> Verdict:
            if state.is_terminated:
                return Verdict.TERMINATED
            return _verdict(health, now, self._hung_s(replica, health, any_responds))

        return [(replica, verdict(replica, health, state)) for replica, health, state in known]

    def _hung_s(self, replica: Replica, health: Health, any_responds: bool) -> float:
        """How long a process may not respond, or be stopped."""
        hung_s = replica.program.hung_s if any_responds else ALL_HUNG_S
        if health.stopped_at is not None and any_responds:
            hung_s = STOPPED_S
        elif health.is_busy:
            hung_s = max(hung_s, BUSY_HUNG_S)
        if replica.worker_id is not None and self._discovery.has_left(replica.worker_id):
            return max(hung_s, replica.program.grace_s)  # it finishes its requests
        return hung_s

    def begin(self, replica: Replica) -> None:
        """Watch a replica that has become ready."""
        now = self._clock()
        watched = self._discovery.watched_folders()
        replica.health = Health(responded=now, found_at=now, watched=watched)

    async def run(self, replicas: Callable[[], Sequence[Replica]]) -> None:
        """Check all that ``replicas`` returns, until the task is cancelled."""
        self._last = self._clock()
        while True:
            try:
                await self.check(replicas())
                self._failure = ""
            except Exception as error:  # noqa: BLE001  without checks, nothing recovers
                self._report(f"cannot check the processes: {error!r}")
            await asyncio.sleep(INTERVAL_S)

    def _report(self, failure: str) -> None:
        if failure != self._failure:
            self._say(failure)
        self._failure = failure

    async def check(self, replicas: Sequence[Replica]) -> None:
        """Probe each replica once."""
        for _ in range(2):  # again after a suspension during the probes, which take 2 s at most
            self._forgive_suspension(replicas)
            began = self._clock()
            await asyncio.gather(*(self._check_response(replica) for replica in replicas))
            if self._clock() - began <= SUSPENDED_S:
                break
        else:
            self._forgive_suspension(replicas)
        self._last = self._clock()
        instances = await self._discovery.instances()
        self._last = self._clock()
        if instances is None:  # discovery did not respond
            self._forgive(replicas)
        else:
            await self._check_registrations(replicas, instances)
        self._last = self._clock()

    async def _check_registrations(
        self, replicas: Sequence[Replica], instances: Sequence[Instance]
    ) -> None:
        responding = [r for r in replicas if r.health is not None and r.health.responds]
        workers = {r.worker_id: r for r in responding if r.worker_id is not None}
        restored = self._discovery.register_again(workers)
        for worker_id in restored:
            name = workers[worker_id].name
            self._say(f"{name} had lost its registration in discovery; registered it again")
        registered = {i.worker_id for i in instances if i.endpoint == "generate"} | restored
        roles = {w.program.role for worker_id, w in workers.items() if worker_id in registered}
        # A frontend does not list a model that has only prefill, or only decode.
        has_models = is_complete(roles)
        for replica in responding:
            health = replica.health
            if health is None:
                continue  # a drain has begun meanwhile
            if replica.serves:
                health.is_found = replica.worker_id in registered
            elif replica.program.role is Role.FRONTEND:
                health.is_found = await self._sees_models(replica, health, has_models)
            self._last = self._clock()
            if health.is_found:
                health.found_at = self._clock()

    def _forgive_suspension(self, replicas: Sequence[Replica]) -> None:
        """Count no time against the processes in which penstock did not run either."""
        now = self._clock()
        if self._last is not None and now - self._last > SUSPENDED_S:
            self._say(
                f"penstock was paused for {now - self._last:.0f} s; restarting all health timeouts"
            )
            self._forgive(replicas)
            for replica in replicas:
                if replica.health is not None:
                    replica.health.responded = now
        self._last = now

    def _forgive(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            if replica.health is not None:
                replica.health.found_at = self._clock()

    async def _check_response(self, replica: Replica) -> None:
        health = replica.health  # it may crash meanwhile, and then has none
        if health is None:
            return
        before, began = health.cpu_s, self._clock()
        health.responds = await self._responds(replica)
        health.cpu_s = self._state_of(replica).cpu_s
        if health.responds:
            health.responded = self._clock()
        # A probe without a response took its time limit; one that failed at once shows no progress.
        took_s = self._clock() - began + INTERVAL_S
        health.is_busy = not health.responds and health.cpu_s - before >= BUSY_SHARE * took_s

    async def _responds(self, replica: Replica) -> bool:
        if replica.program.greets:
            return await self._prober.greets(LOOPBACK, replica.probe_port)
        if replica.program.role is Role.FRONTEND:
            return await self._prober.responds(f"{self._endpoint.frontend_url(replica)}/live")
        if replica.program.service:
            return await self._prober.responds(f"http://{LOOPBACK}:{replica.probe_port}/live")
        # GET is 503 for a worker without a canary, and its log gets an ERROR each time. The same
        # server responds to OPTIONS with 405.
        url = f"http://{LOOPBACK}:{replica.system_port}/live"
        return await self._prober.responds(url, "OPTIONS")

    async def _sees_models(self, frontend: Replica, health: Health, has_models: bool) -> bool:
        """Whether the frontend sees what is registered, so that requests reach the workers."""
        if not self._discovery.is_watched(health.watched):
            health.found_at = -math.inf  # its watch cannot recover: do not wait
            return False
        models = await self._prober.models(self._endpoint.frontend_url(frontend))
        return models is None or bool(models) or not has_models
