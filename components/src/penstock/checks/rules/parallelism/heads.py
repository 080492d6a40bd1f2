"""The attention heads of a worker's model, for rules about its parallelism."""

from __future__ import annotations

from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker


def dividing_tp(deployment: ServingDeployment, worker: Worker) -> int:
    """The worker's tensor parallelism, or the next lower one if it does not divide the heads."""
    heads = heads_of(deployment, worker)
    if not heads or not worker.is_laid_out or worker.has_attention_dp:
        return worker.tp
    return max(n for n in range(1, worker.tp + 1) if heads % n == 0)


def heads_of(deployment: ServingDeployment, worker: Worker) -> int | None:
    facts = deployment.facts_of(worker)
    if facts is not None and facts.heads:
        return facts.heads
    return deployment.model.heads if deployment.model else None
