"""What happens to the GPUs of a replica that its engine does not use."""

from __future__ import annotations

from dataclasses import replace

from penstock.checks.finding import Level, RuleResult
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
