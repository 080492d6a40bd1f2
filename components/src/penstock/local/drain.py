"""Ending one replica without losing a request: unregister, finish, SIGTERM, then SIGKILL."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

from penstock.local.discovery import Discovery
from penstock.local.probe import Prober
from penstock.local.replica import Replica
from penstock.manifests.deployment import Role

POLL_S = 0.2
# Routers follow the discovery with a delay, and a decode worker may still pull KV blocks from a
# prefill worker whose own request is done: idle counts only when it lasts.
SETTLE_S = 2.0
UNANSWERED = 5  # polls in a row without an answer: the worker is past telling
HUNG_S = 10.0  # what is left to a worker that does not answer


@dataclass(frozen=True, kw_only=True)
class DrainResult:
    """How a drain went: ``killed`` means requests may have been cut."""

    killed: bool
    unfinished: int


async def drain(
    replica: Replica,
    discovery: Discovery,
    prober: Prober,
    *,
    settle_s: float = SETTLE_S,
    with_generation: bool = False,
) -> DrainResult:
    """Returns when nothing of the replica runs any more; takes at most its grace time and a bit.

    ``settle_s``: how long a worker must be idle before it is ended; 0 when no frontend is left.
    ``with_generation``: all workers of its generation leave together. Then a request that one of
    them has begun must find the others, so it stays registered until it is idle.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + replica.program.grace_s
    unfinished = 0
    if replica.worker_id is not None:
        leave = discovery.remove_model_card if with_generation else discovery.remove
        await leave(replica.worker_id)
        unfinished, hung = await _finish(replica, prober, deadline, settle_s)
        if hung:
            deadline = min(deadline, clock() + HUNG_S)
    replica.child.signal(signal.SIGTERM)
    killed = not await wait_for_exit(replica, deadline)
    replica.child.kill()
    if replica.worker_id is not None:
        await discovery.remove(replica.worker_id)
    return DrainResult(killed=killed, unfinished=unfinished)


async def _finish(
    replica: Replica, prober: Prober, deadline: float, settle_s: float
) -> tuple[int, bool]:
    """Wait until the worker has been idle for ``settle_s`` seconds.

    The requests left, and whether it stopped answering.
    """
    clock = asyncio.get_running_loop().time
    idle_since: float | None = None
    unanswered, inflight = 0, 0
    while clock() < deadline and replica.child.exit_code() is None:
        answer = await prober.worker(replica.system_port or 0)
        if answer is None:
            unanswered += 1
            if unanswered == UNANSWERED:
                return inflight, True
        elif answer.inflight:
            unanswered, inflight, idle_since = 0, answer.inflight, None
        else:
            unanswered, inflight = 0, 0
            idle_since = clock() if idle_since is None else idle_since
            if clock() - idle_since >= settle_s:
                return 0, False
        await asyncio.sleep(POLL_S)
    return inflight, False


async def wait_for_exit(replica: Replica, deadline: float) -> bool:
    """Whether the child ended by itself before ``deadline`` (loop clock)."""
    clock = asyncio.get_running_loop().time
    while replica.child.exit_code() is None:
        if clock() >= deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def in_stop_order(replicas: list[Replica]) -> list[list[Replica]]:
    """Waves: frontends finish their streams first, while all behind them still works."""
    frontends = [r for r in replicas if r.program.role is Role.FRONTEND]
    workers = [r for r in replicas if r.serves]
    services = [r for r in replicas if r.program.service]
    return [wave for wave in (frontends, workers, services) if wave]
