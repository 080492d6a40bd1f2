"""Rules about parallelism: GPUs, attention heads and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.parallelism.experts import EXPERT_KEYS
from penstock.checks.rules.parallelism.heads import dividing_tp, heads_of
from penstock.checks.rules.parallelism.unused_gpus import with_too_many, without_gpus
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.engines.settings import Location
from penstock.hardware import Gpu
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

EXPERTS = "moe_expert_parallel_size"
# Flags with which a replica runs a part of vLLM's data-parallel ranks.
SHARED_RANKS = ("data-parallel-hybrid-lb", "data-parallel-external-lb", "data-parallel-start-rank")
# Flags with which the number of ranks changes while the engine runs.
ELASTIC = ("enable-elastic-ep", "elastic-ep-backend")


def indivisible_heads(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        heads, fitting = heads_of(deployment, worker), dividing_tp(deployment, worker)
        if fitting != worker.tp:
            experts = worker.is_trtllm and worker.get(EXPERTS) and worker.ep > fitting
            config = {EXPERTS: fitting} if experts else {}
            key = COMMON_SETTINGS["tensor_parallel"].get(worker.engine, "tensor_parallel_size")
            others, nodes = worker.world // worker.tp, worker.component.nodes
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"{heads} attention heads are not divisible by tensor parallelism "
                f"{worker.tp}",
                fix=Fix(
                    text=f"Set {key} to {fitting}.",
                    config={key: fitting, **config},
                    graph={
                        f"{worker.name}.gpus": -(-fitting * others // max(1, nodes)),
                        f"{worker.name}.config.{key}": fitting,
                        **{f"{worker.name}.config.{name}": n for name, n in config.items()},
                    },
                ),
            )


def gpus_do_not_match_parallelism(deployment: ServingDeployment) -> Iterable[RuleResult]:
    yield from without_gpus(deployment)
    for worker in deployment.workers:
        if (
            worker.engine is Engine.MOCKER
            or not worker.settings.is_complete
            or not worker.component.gpus
            or not worker.is_laid_out
        ):
            continue
        processes = deployment.processes(worker.name)
        gpus = worker.component.gpus // max(1, processes)
        if worker.env("CUDA_VISIBLE_DEVICES") and processes > 1:
            gpus = len((worker.env("CUDA_VISIBLE_DEVICES") or "").split(","))
        if (ranks := _ranks_of_replica(worker)) == 0:
            continue
        world = worker.tp * worker.pp * worker.cp * ranks
        if _runs_on_each_node(worker, world):
            continue
        if world > gpus:
            result = _mismatch(deployment, worker, (ranks, gpus, processes))
            yield replace(result, why="The worker exits at startup.")
        elif world < gpus and worker.settings.common("tensor_parallel") is not None:
            result = _mismatch(deployment, worker, (ranks, gpus, processes))
            yield with_too_many(result, worker, world, gpus)


def _runs_on_each_node(worker: Worker, world: int) -> bool:
    """Whether the operator starts an engine of its own on each node: it adds vLLM's flags for
    several nodes only if one node has too few GPUs."""
    nodes = worker.component.nodes
    return worker.engine is Engine.VLLM and nodes > 1 and world <= worker.component.gpus // nodes


def _ranks_of_replica(worker: Worker) -> int:
    """Data-parallel ranks of this replica; vLLM may run others of the group in other replicas.
    0 if vLLM decides how many."""
    if any(worker.get(flag) is not None for flag in ELASTIC):
        return 0
    if worker.engine is Engine.VLLM:
        if (local := positive_int(worker.get("data-parallel-size-local"))) is not None:
            return min(worker.dp, local * max(1, worker.component.nodes))
        if worker.get("data-parallel-rank") is not None:
            return 1
        if any(worker.get(flag) is not None for flag in SHARED_RANKS):
            return 0
    return worker.dp


def _mismatch(
    deployment: ServingDeployment,
    worker: Worker,
    counts: tuple[int, int, int],
) -> RuleResult:
    """``counts``: data-parallel ranks, GPUs and processes."""
    ranks, gpus, processes = counts
    factors = [("TP", worker.tp), ("PP", worker.pp), ("CP", worker.cp), ("DP", ranks)]
    shown = " × ".join(f"{label} {size}" for label, size in factors if size > 1) or "TP 1"
    others = worker.pp * worker.cp * ranks
    world = worker.tp * others
    per_pod = -(-world * processes // max(1, worker.component.nodes))
    fix = Fix(
        text=f"Give each replica {world * processes} GPUs, or change the parallelism.",
        fields={"main/resources/limits/nvidia.com~1gpu": str(per_pod)},
        graph={f"{worker.name}.gpus": per_pod},
    )
    fitting = gpus // others
    is_split = deployment.model is not None and deployment.model.heads % max(1, fitting) == 0
    if fitting and gpus % others == 0 and is_split:
        config = {COMMON_SETTINGS["tensor_parallel"][worker.engine]: fitting}
        if worker.get(EXPERT_KEYS[worker.engine]) == worker.tp:
            config[EXPERT_KEYS[worker.engine]] = fitting
        fix = Fix(
            text=f"Set the tensor parallelism to {fitting}, or change the number of GPUs.",
            config=config,
        )
    return RuleResult(
        location=worker.settings.location("tensor_parallel"),
        message=f"{worker.name} needs {shown} = {world} GPUs but has {gpus}",
        fix=fix,
    )


def more_gpus_than_a_node(deployment: ServingDeployment) -> Iterable[RuleResult]:
    per_node, tray = deployment.gpus_per_node, _of_tray(deployment.gpu)
    if tray and per_node and per_node > tray.gpus_per_node:
        yield RuleResult(
            location=Location("", "graph", ("hardware", "gpus_per_node")),
            message=f"hardware.gpus_per_node is {per_node}, but a node of {tray.name} has "
            f"{tray.gpus_per_node} GPUs",
            why="Checks and plans assume nodes that do not exist. Pods that need one stay Pending.",
            fix=Fix(
                text=f"Set it to {tray.gpus_per_node}.",
                graph={"hardware.gpus_per_node": tray.gpus_per_node},
            ),
            level=Level.WARNING,
        )
        per_node = tray.gpus_per_node
    for component in deployment.components:
        pod_gpus = component.gpus // max(1, component.nodes)
        if per_node and pod_gpus > per_node:
            worker = next((w for w in deployment.workers if w.name == component.name), None)
            if worker is None:
                continue
            nodes = -(-component.gpus // per_node)
            yield RuleResult(
                location=worker.location("field", "main", "resources"),
                message=f"the pod requests {pod_gpus} GPUs, but a node has only {per_node}",
                fix=Fix(
                    text=f"Spread the replica over {nodes} nodes.",
                    fields={
                        "multinode/nodeCount": nodes,
                        "main/resources/limits/nvidia.com~1gpu": str(-(-component.gpus // nodes)),
                    },
                    graph={
                        f"{worker.name}.nodes": nodes,
                        f"{worker.name}.gpus": -(-component.gpus // nodes),
                    },
                ),
            )


def _of_tray(gpu: Gpu | None) -> Gpu | None:
    """The GPU if its nodes are the trays of a rack; nodes of others may have any number."""
    return gpu if gpu is not None and gpu.is_grace else None


def beyond_nvlink(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers if gpu else ():
        if gpu and worker.tp > gpu.nvlink_domain and not worker.has_attention_dp:
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"tensor parallelism {worker.tp} is larger than the NVLink domain of "
                f"{gpu.nvlink_domain} GPUs",
                why=f"The bandwidth of each GPU drops from {gpu.nvlink_gbs} GB/s to that of the "
                f"network, {gpu.nic_gbits // 8} GB/s, and a step takes several times as long.",
                fix=Fix(
                    text=f"Limit tensor parallelism to {gpu.nvlink_domain}, and use pipeline "
                    "parallelism between the domains."
                ),
            )


def stranded_gpus(deployment: ServingDeployment) -> Iterable[RuleResult]:
    per_node = deployment.gpus_per_node
    for worker in deployment.workers:
        gpus = worker.component.gpus // max(1, worker.component.nodes)
        if per_node and gpus and gpus < per_node and per_node % gpus:
            yield RuleResult(
                location=worker.location("field", "main", "resources"),
                message=f"{gpus} GPUs per replica leave {per_node % gpus} of the {per_node} "
                "GPUs of each node unused",
                fix=Fix(text=f"Use a number of GPUs per replica that divides {per_node}."),
            )


def more_gpus_than_available(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.gpu_nodes and deployment.gpus_per_node:
        available = deployment.gpu_nodes * deployment.gpus_per_node
        if deployment.gpus > available:
            yield RuleResult(
                location=Location("", "graph", ("hardware", "nodes")),
                message=f"the graph needs {deployment.gpus} GPUs, but hardware.nodes "
                f"{deployment.gpu_nodes} with {deployment.gpus_per_node} GPUs each has "
                f"{available}",
                fix=Fix(text="Use fewer replicas, or raise hardware.nodes."),
            )


def duplicated_kv_heads(deployment: ServingDeployment) -> Iterable[RuleResult]:
    model = deployment.model
    for worker in deployment.workers if model else ():
        if (
            model
            and not model.is_mla
            and worker.tp > model.kv_heads
            and not worker.has_attention_dp
            and worker.dcp == 1
        ):
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"tensor parallelism {worker.tp} exceeds the {model.kv_heads} KV heads, "
                f"so each head is stored {worker.tp // model.kv_heads} times",
                fix=Fix(
                    text=f"Use attention DP or pipeline parallelism beyond {model.kv_heads} GPUs."
                ),
            )


def pipeline_stages_mismatch(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        partition = worker.get("pp_partition")
        if not isinstance(partition, list) or not worker.is_trtllm:
            continue
        layers = deployment.model.layers if deployment.model else None
        total = sum(p for p in partition if isinstance(p, int))
        if len(partition) != worker.pp or (layers and total != layers):
            yield RuleResult(
                location=worker.config_location("pp_partition"),
                message=f"pp_partition has {len(partition)} stages and {total} layers, but "
                f"pipeline parallelism is {worker.pp}"
                + (f" and the model has {layers} layers" if layers else ""),
                fix=Fix(
                    text="Set one entry per stage, with the model's number of layers as their sum."
                ),
            )


def multi_node_component(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.nodes > 1 and component.role not in (Role.PREFILL, Role.DECODE, Role.WORKER):
            yield RuleResult(
                location=Location(component.name, "field", ("multinode",)),
                message=f"{component.name} ({component.role}) has {component.nodes} nodes, but "
                "only workers can span nodes",
                fix=Fix(text="Remove multinode."),
            )
