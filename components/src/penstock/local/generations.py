"""Generations: when the configuration of one worker changes, all workers of the graph are replaced.

The old generation keeps running until every frontend reports the new one as ready.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from penstock.local.deployment import Program
from penstock.local.discovery import Discovery
from penstock.local.probe import Prober
from penstock.local.reconcile import ReplicaState
from penstock.local.replica import Replica
from penstock.manifests.deployment import Role

SUFFIX = "DYN_NAMESPACE_WORKER_SUFFIX"
POLL_S = 0.2


def with_generations(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """The programs with the workers' generation in their environment: when one worker changes, all
    roll."""
    workers = [p for p in programs if p.role is not Role.FRONTEND]
    text = "".join(sorted(f"{p.name} {p.key}" for p in workers))
    suffix = {SUFFIX: hashlib.sha256(text.encode()).hexdigest()[:8]}
    return tuple(replace(p, env={**p.env, **suffix}) if p in workers else p for p in programs)


def is_complete(roles: AbstractSet[Role]) -> bool:
    """Whether workers of these roles serve a model; frontends list none with one pool of two."""
    return Role.WORKER in roles or {Role.PREFILL, Role.DECODE} <= roles


async def is_served(
    new: Sequence[Replica], frontends: Sequence[str], discovery: Discovery, prober: Prober
) -> bool:
    """Whether all ``frontends`` (base URLs) route requests to the ``new`` workers.

    A frontend loads the tokenizer of a new generation after its workers have registered. If the old
    generation stops earlier, the frontend has no model and returns 404.
    """
    workers = {replica.worker_id for replica in new}
    instances = await discovery.instances() or ()
    namespaces = {i.namespace for i in instances if i.worker_id in workers}
    ready = await asyncio.gather(*(prober.ready_namespaces(frontend) for frontend in frontends))
    return all(each is None or not each.isdisjoint(namespaces) for each in ready)


async def until_prefill_has_stopped(
    decode: Replica,
    replicas: Sequence[Replica],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Wait until no prefill worker of the generation of ``decode`` drains.

    A frontend sends no new request to a generation without prefill workers. Requests that were
    already prefilled there still need its decode workers. The caller changes ``replicas`` during
    the wait.
    """
    generation = decode.program.env.get(SUFFIX)
    while decode.child.exit_code() is None and any(
        r.program.role is Role.PREFILL
        and r.program.env.get(SUFFIX) == generation
        and r.state is ReplicaState.DRAINING
        for r in replicas
    ):
        await sleep(POLL_S)
