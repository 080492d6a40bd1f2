"""Stop one replica without losing a request: unregister, finish, SIGTERM, then SIGKILL."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.local.discovery import Discovery
from penstock.local.probe import Prober
from penstock.local.replica import Replica
from penstock.manifests.deployment import Role

POLL_S = 0.2
# Routers see a change in discovery with a delay, and a decode worker may still pull KV blocks from
# a prefill worker whose own request is done. So a worker must stay idle for this long.
SETTLE_S = 2.0
UNANSWERED = 5  # polls in a row without a response: the worker hangs
HUNG_S = 10.0  # the grace period of a worker that hangs
ABANDONED_S = 3.0  # of a worker whose requests have no client


@dataclass(frozen=True, kw_only=True)
class DrainResult:
    """How a drain ended."""

    killed: bool
    """SIGKILL was needed, so requests may have failed."""
    unfinished: int
    """Requests in flight at the last poll."""


async def drain(
    replica: Replica,
    discovery: Discovery,
    prober: Prober,
    *,
    settle_s: float = SETTLE_S,
    with_generation: bool = False,
) -> DrainResult:
    """Return when no process of the replica runs; takes little more than its grace period at most.

    ``settle_s``: seconds that a worker must be idle before SIGTERM; 0 when no frontend is left, so
    that no client waits for what still runs.
    ``with_generation``: all workers of its generation stop together. A request that one of them has
    begun must find the others, so the worker stays registered until it is idle.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + replica.program.grace_s
    unfinished, is_abandoned = 0, False
    if replica.worker_id is not None and settle_s:
        unregister = discovery.remove_model_card if with_generation else discovery.remove
        await unregister(replica.worker_id)
        unfinished, hung = await _finish(replica, prober, deadline, settle_s)
        if hung:
            deadline = min(deadline, clock() + HUNG_S)
    elif replica.worker_id is not None:  # Dynamo removes what it registered
        status = await prober.worker(replica.system_port or 0)
        is_abandoned = status is None or status.inflight > 0
        if is_abandoned:
            deadline = min(deadline, clock() + ABANDONED_S)
    replica.child.end()
    killed = not await wait_for_exit(replica, deadline) and not is_abandoned
    replica.child.kill()
    if replica.worker_id is not None:
        await discovery.remove(replica.worker_id)
    return DrainResult(killed=killed, unfinished=unfinished)


async def _finish(
    replica: Replica, prober: Prober, deadline: float, settle_s: float
) -> tuple[int, bool]:
    """Wait until the worker has been idle for ``settle_s`` seconds.

    Returns the requests in flight, and whether the worker hangs.
    """
    clock = asyncio.get_running_loop().time
    idle_since: float | None = None
    unanswered, inflight = 0, 0
    while clock() < deadline and replica.child.exit_code() is None:
        status = await prober.worker(replica.system_port or 0)
        if status is None:
            unanswered += 1
            if unanswered == UNANSWERED:
                return inflight, True
        elif status.inflight:
            unanswered, inflight, idle_since = 0, status.inflight, None
        else:
            unanswered, inflight = 0, 0
            idle_since = clock() if idle_since is None else idle_since
            if clock() - idle_since >= settle_s:
                return 0, False
        await asyncio.sleep(POLL_S)
    return inflight, False


async def wait_for_exit(replica: Replica, deadline: float) -> bool:
    """Whether the child exited before ``deadline`` (loop clock)."""
    clock = asyncio.get_running_loop().time
    while replica.child.exit_code() is None:
        if clock() >= deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def in_stop_order(replicas: list[Replica]) -> list[list[Replica]]:
    """Replicas in waves: frontends stop first, while the workers still serve their streams."""
    frontends = [r for r in replicas if r.program.role is Role.FRONTEND]
    workers = [r for r in replicas if r.serves]
    services = [r for r in replicas if r.program.service]
    return [wave for wave in (frontends, workers, services) if wave]
