"""How a worker's model is split over its GPUs: attention heads, experts and blocks of weights."""

from __future__ import annotations

from math import gcd

from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

__all__ = [
    "EXPERT_KEYS",
    "dividing_tp",
    "expert_ranks",
    "gcd",
    "gpus_of_process",
    "heads_of",
    "raised_tp",
]

# The key of each engine that sets expert parallelism.
EXPERT_KEYS = {
    Engine.TRTLLM: "moe_expert_parallel_size",
    Engine.VLLM: "enable-expert-parallel",
    Engine.SGLANG: "ep-size",
}


def heads_of(deployment: ServingDeployment, worker: Worker) -> int | None:
    """The attention heads of the worker's model."""
    facts = deployment.facts_of(worker)
    if facts is not None and facts.heads:
        return facts.heads
    return deployment.model.heads if deployment.model else None


def dividing_tp(deployment: ServingDeployment, worker: Worker) -> int:
    """The worker's tensor parallelism, or the next lower one if it does not divide the heads."""
    heads = heads_of(deployment, worker)
    if not heads or not worker.is_laid_out or worker.has_attention_dp:
        return worker.tp
    return max(n for n in range(1, min(heads, worker.tp) + 1) if heads % n == 0)


def gpus_of_process(deployment: ServingDeployment, worker: Worker) -> int:
    """The GPUs of a replica for each of its processes."""
    return worker.component.gpus // max(1, deployment.processes(worker.name))


def raised_tp(deployment: ServingDeployment, worker: Worker, factor: int | None) -> int | None:
    """Tensor parallelism over all GPUs of the replica, if it is larger than now and the experts'
    ``factor`` divides it."""
    tp = gpus_of_process(deployment, worker) // (worker.world // worker.tp)
    model = deployment.model
    is_split = worker.has_attention_dp or model is None or model.heads % max(1, tp) == 0
    if factor is None or tp <= worker.tp or tp % factor or not is_split:
        return None
    return None if worker.get("moe_tensor_parallel_size") and tp != factor else tp


def expert_ranks(worker: Worker) -> int:
    """GPUs of vLLM or SGLang that share one expert."""
    if worker.engine is Engine.VLLM:
        return 1 if worker.ep > 1 else worker.tp * worker.dp * worker.cp
    return max(1, worker.tp // worker.ep)
