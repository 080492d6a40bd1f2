"""Generations: all workers of a graph are replaced together when the configuration of one changes.

The old generation serves until the new one does, and no request is lost in between.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace

from penstock.local.deployment import Program
from penstock.local.discovery import Discovery
from penstock.local.probe import Prober
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


async def is_served(
    new: Sequence[Replica], frontends: Sequence[str], discovery: Discovery, prober: Prober
) -> bool:
    """Whether all ``frontends`` (base URLs) route requests to the ``new`` workers.

    A frontend loads the tokenizer of a new generation after its workers have registered. If the old
    generation stops before, the frontend has no model and returns 404.
    """
    workers = {replica.worker_id for replica in new}
    instances = await discovery.instances() or ()
    namespaces = {i.namespace for i in instances if i.worker_id in workers}
    for frontend in frontends:
        ready = await prober.ready_namespaces(frontend)
        if ready is not None and ready.isdisjoint(namespaces):
            return False
    return True


async def until_prefilled(decode: Replica, replicas: Sequence[Replica]) -> None:
    """Wait until no prefill worker of the generation of ``decode`` is among ``replicas``.

    Without prefill workers, frontends choose a generation for no new request; those that were
    prefilled there still find their decode workers. ``replicas`` changes meanwhile.
    """
    generation = decode.program.env.get(SUFFIX)
    while any(
        r.program.role is Role.PREFILL and r.program.env.get(SUFFIX) == generation for r in replicas
    ):
        await asyncio.sleep(POLL_S)
