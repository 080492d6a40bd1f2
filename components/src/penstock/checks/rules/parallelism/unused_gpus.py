"""Rules about replicas with more GPUs than their engine uses, or with none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

LARGEST_NODE = 16  # GPUs of the largest nodes on the market, such as DGX-2 or a2-megagpu-16g


def with_too_many(result: RuleResult, worker: Worker, world: int, gpus: int) -> RuleResult:
    """``world``: GPUs that the engine uses of the replica's ``gpus``."""
    if worker.component.gpus > LARGEST_NODE * max(1, worker.component.nodes):
        return replace(
            result,
            message=f"{result.message}, more than a node has",
            why="No node has so many GPUs, so the pod stays Pending indefinitely.",
        )
    if _is_run_by_mpi(worker):
        return _too_many_ranks(result, world, gpus)
    return replace(
        result,
        message=f"{result.message}: the others are unused",
        why="They are reserved for the pods and do nothing.",
        level=Level.WARNING,
    )


def _is_run_by_mpi(worker: Worker) -> bool:
    """Whether the operator starts an MPI rank for each GPU of the replica."""
    return worker.is_trtllm and worker.component.nodes > 1


def _too_many_ranks(result: RuleResult, world: int, gpus: int) -> RuleResult:
    return replace(
        result,
        message=f"{result.message}, and each GPU gets an MPI rank",
        why=f"For several nodes the operator runs `mpirun -n {gpus}`. TensorRT-LLM fails in the "
        f"ranks from {world} on, so the worker does not start.",
    )


def without_gpus(deployment: ServingDeployment) -> Iterator[RuleResult]:
    """Workers with a request for 0 GPUs. Without a request, they may get GPUs in another way."""
    for worker in deployment.one_worker_per_component:
        pod, field = worker.pod, _zero_gpus(worker)
        if worker.component.gpus or not field or pod.claims.value:
            continue
        if worker.engine is not Engine.LLAMACPP:
            yield RuleResult(
                location=worker.location("field", "main", "resources"),
                message=f"{worker.name} requests 0 GPUs, but its engine needs {worker.world}",
                why="The engine finds no GPU and exits at startup.",
                fix=Fix(
                    text=f"Set {field} to {worker.world}.",
                    fields={f"main/resources/limits/{field.replace('/', '~1')}": str(worker.world)},
                ),
            )


def _zero_gpus(worker: Worker) -> str:
    """The resource for NVIDIA GPUs whose amount is 0; empty if there is none."""
    for resources in (worker.pod.containers[0].cursor["resources"], worker.pod.resources):
        for name, amount in as_mapping(resources["limits"].value).items():
            if name in ("nvidia.com/gpu", "gpu") and str(amount) == "0":
                return "nvidia.com/gpu"
    return ""
