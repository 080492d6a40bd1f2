"""How a worker's model is split over its GPUs, and which GPUs its processes need and see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.checks.rules.containers import security_context
from penstock.manifests.deployment import Engine
from penstock.manifests.pods import resources_of
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.text.values import as_mapping, positive_int

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


DEVICES = "CUDA_VISIBLE_DEVICES"
LARGEST_NODE = 16  # GPUs of the largest nodes on the market, such as DGX-2 or a2-megagpu-16g
# Flags with which a replica runs a part of vLLM's data-parallel ranks.
_SHARED_RANKS = ("data-parallel-hybrid-lb", "data-parallel-external-lb", "data-parallel-start-rank")
# Flags with which the number of ranks changes while the engine runs.
_ELASTIC = ("enable-elastic-ep", "elastic-ep-backend")


@dataclass(frozen=True, kw_only=True)
class GpuCount:
    """The GPUs of one process of a worker."""

    worker: Worker
    # Processes of a pod.
    processes: int
    # Data-parallel ranks of the replica.
    ranks: int
    gpus: int

    @property
    def needed(self) -> int:
        return self.worker.tp * self.worker.pp * self.worker.cp * self.ranks

    @property
    def parallelism(self) -> str:
        """Such as `TP 2 × DP 4`."""
        worker = self.worker
        sizes = {"TP": worker.tp, "PP": worker.pp, "CP": worker.cp, "DP": self.ranks}
        return " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "TP 1"


def gpu_counts(deployment: ServingDeployment) -> Iterator[GpuCount]:
    """Of the workers that request GPUs and whose parallelism is known."""
    for worker in deployment.workers:
        processes, ranks = deployment.processes(worker.name), _ranks_of_replica(worker)
        visible = worker.env(DEVICES)
        gpus = gpus_of_process(deployment, worker)
        if visible and processes > 1:
            gpus = len(visible.split(","))
        is_known = worker.settings.is_complete and worker.is_laid_out and worker.component.gpus
        count = GpuCount(worker=worker, processes=processes, ranks=ranks, gpus=gpus)
        if is_known and ranks and worker.engine is not Engine.MOCKER and not _is_per_node(count):
            yield count


def _is_per_node(count: GpuCount) -> bool:
    """Whether the operator starts an engine of its own on each node: it adds vLLM's flags for
    several nodes only if one node has too few GPUs."""
    component = count.worker.component
    is_vllm = count.worker.engine is Engine.VLLM
    return is_vllm and component.nodes > 1 and count.needed <= component.gpus // component.nodes


def _ranks_of_replica(worker: Worker) -> int:
    """Data-parallel ranks of this replica; vLLM may run others of the group in other replicas.
    0 if vLLM decides how many."""
    if any(worker.get(flag) is not None for flag in _ELASTIC):
        return 0
    if worker.engine is Engine.VLLM:
        if (local := positive_int(worker.get("data-parallel-size-local"))) is not None:
            return min(worker.dp, local * max(1, worker.component.nodes))
        if worker.get("data-parallel-rank") is not None:
            return 1
        if any(worker.get(flag) is not None for flag in _SHARED_RANKS):
            return 0
    return worker.dp


def requests_no_gpus(worker: Worker) -> bool:
    """Whether the pod requests 0 GPUs. Without a request, it may get GPUs in another way."""
    if worker.component.gpus or worker.pod.claims.value:
        return False
    return any(
        name in ("nvidia.com/gpu", "gpu") and str(amount) == "0"
        for resources in resources_of(worker.pod)
        for name, amount in as_mapping(resources["limits"].value).items()
    )


def visible_gpus(worker: Worker) -> int | None:
    """The entries of CUDA_VISIBLE_DEVICES before the first GPU that the pod does not have; None
    if they are UUIDs, `all` or a text that only the cluster knows, or if a privileged container
    has all GPUs of the node."""
    listed = [entry.strip() for entry in (worker.env(DEVICES) or "").split(",")]
    if not all(entry.isdigit() for entry in listed):
        return None
    if security_context(worker.pod).get("privileged") is True:
        return None
    owned = worker.component.gpus
    beyond = (at for at, entry in enumerate(listed) if owned and int(entry) >= owned)
    return next(beyond, len(listed))
