"""Rules of parallelism: GPUs against heads, experts, nodes, kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import gcd

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import WORDS, Location
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# What decides expert parallelism, in each engine's words.
EXPERTS = {
    Engine.TRTLLM: "moe_expert_parallel_size",
    Engine.VLLM: "enable-expert-parallel",
    Engine.SGLANG: "ep-size",
}


@rule(
    id="PS201",
    title="expert and tensor parallelism that do not multiply",
    level=Level.ERROR,
    cause="moe_tensor_parallel_size × moe_expert_parallel_size must be tensor_parallel_size.",
    effect="The engine refuses to start.",
    remedy="Give expert parallelism alone; the other follows.",
    source="dynamo#7140; TensorRT-LLM mapping.py",
)
def experts_and_tp(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if not worker.is_trtllm:
            continue
        moe_tp = positive_int(worker.get("moe_tensor_parallel_size"))
        moe_ep = positive_int(worker.get("moe_expert_parallel_size"))
        if moe_ep and moe_tp and moe_tp * moe_ep != worker.tp:
            ep = worker.tp if worker.tp % moe_ep else moe_ep
            yield RuleResult(
                location=worker.config("moe_expert_parallel_size"),
                message=f"moe_tensor_parallel_size {moe_tp} × moe_expert_parallel_size {moe_ep} is "
                f"{moe_tp * moe_ep}, and tensor_parallel_size is {worker.tp}",
                fix=Fix(
                    text="leave moe_tensor_parallel_size out: it follows",
                    config={
                        "moe_expert_parallel_size": ep,
                        "moe_tensor_parallel_size": worker.tp // ep,
                    },
                ),
            )
        elif moe_ep and not moe_tp and worker.tp % moe_ep:
            yield RuleResult(
                location=worker.config("moe_expert_parallel_size"),
                message=f"moe_expert_parallel_size {moe_ep} does not divide tensor_parallel_size "
                f"{worker.tp}",
                fix=Fix(text="use a divisor", config={"moe_expert_parallel_size": worker.tp}),
            )


@rule(
    id="PS202",
    title="heads that do not divide",
    level=Level.ERROR,
    cause="Tensor parallelism does not divide the attention heads.",
    effect="The engine refuses to start.",
    remedy="Use a divisor: gpt-oss has 64 heads, so 1, 2, 4, 8 …",
    source="vllm#2652; gpt_oss modeling in TensorRT-LLM (sinks are split by TP)",
)
def heads(deployment: ServingDeployment) -> Iterable[RuleResult]:
    model = deployment.model
    for worker in deployment.workers if model else ():
        if model and model.heads % worker.tp and not worker.has_attention_dp:
            fitting = max(n for n in range(1, worker.tp + 1) if model.heads % n == 0)
            key = WORDS["tensor_parallel"].get(worker.engine, "tensor_parallel_size")
            others, nodes = worker.world // worker.tp, worker.component.nodes
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"{model.heads} attention heads do not divide by tensor parallelism "
                f"{worker.tp}",
                fix=Fix(
                    text=f"use {fitting}",
                    config={key: fitting},
                    graph={
                        f"{worker.name}.gpus": -(-fitting * others // max(1, nodes)),
                        f"{worker.name}.config.{key}": fitting,
                    },
                ),
            )


@rule(
    id="PS203",
    title="experts that do not divide",
    level=Level.ERROR,
    cause="Expert parallelism does not divide the number of experts.",
    effect="The engine refuses to start.",
    remedy="Use a divisor: gpt-oss-120b has 128 experts, 20b has 32.",
    source="MoE slots in TensorRT-LLM (num_slots // moe_ep)",
)
def experts(deployment: ServingDeployment) -> Iterable[RuleResult]:
    model = deployment.model
    for worker in deployment.workers if model else ():
        if model and worker.ep > 1 and model.experts and model.experts % worker.ep:
            yield RuleResult(
                location=worker.config(EXPERTS[worker.engine]),
                message=f"{model.experts} experts do not divide by expert parallelism {worker.ep}",
                fix=Fix(
                    text="use a divisor of both",
                    config={EXPERTS[worker.engine]: _spread(worker, gcd(worker.ep, model.experts))},
                ),
            )


@rule(
    id="PS204",
    title="expert parallelism of a dense model",
    level=Level.WARNING,
    cause="The model has no experts.",
    effect="It has no effect, or the engine refuses it.",
    remedy="Remove it.",
    source="TensorRT-LLM mapping.py",
)
def experts_of_dense(deployment: ServingDeployment) -> Iterable[RuleResult]:
    model = deployment.model
    for worker in deployment.workers if model else ():
        if model and worker.ep > 1 and not model.experts:
            yield RuleResult(
                location=worker.config(EXPERTS[worker.engine]),
                message=f"expert parallelism {worker.ep}, and {model.name} has no experts",
                fix=Fix(
                    text="experts are not spread",
                    config={EXPERTS[worker.engine]: _spread(worker, 1)},
                ),
            )


def _spread(worker: Worker, ranks: int) -> int | bool:
    """Expert parallelism as the engine says it: vLLM has all ranks or one."""
    return ranks == worker.ep if worker.engine is Engine.VLLM else ranks


@rule(
    id="PS205",
    title="GPUs that are not what the parallelism needs",
    level=Level.ERROR,
    cause="TP × PP × CP × DP is not the number of GPUs of a replica.",
    effect="Too few: the worker ends at its start. Too many: GPUs that nobody uses.",
    remedy="Make them equal.",
    source="dynamo#4934; TensorRT-LLM llm_args.py (world size)",
)
def gpus_and_world(deployment: ServingDeployment) -> Iterable[RuleResult]:
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
        ranks = _ranks_here(worker)
        world = worker.tp * worker.pp * worker.cp * ranks
        if world > gpus:
            yield _world(deployment, worker, (ranks, gpus, processes), "more than it has")
        elif world < gpus and worker.settings.word("tensor_parallel") is not None:
            found = _world(deployment, worker, (ranks, gpus, processes), "the rest idles")
            yield replace(found, level=Level.WARNING)


def _ranks_here(worker: Worker) -> int:
    """Data-parallel ranks of this replica: vLLM may have others of the same group elsewhere."""
    if worker.engine is Engine.VLLM:
        if (local := positive_int(worker.get("data-parallel-size-local"))) is not None:
            return min(worker.dp, local * max(1, worker.component.nodes))
        if worker.get("data-parallel-rank") is not None:
            return 1
    return worker.dp


def _world(
    deployment: ServingDeployment, worker: Worker, counts: tuple[int, int, int], words: str
) -> RuleResult:
    """``counts``: data-parallel ranks, GPUs and processes."""
    ranks, gpus, processes = counts
    factors = [("TP", worker.tp), ("PP", worker.pp), ("CP", worker.cp), ("DP", ranks)]
    shown = " × ".join(f"{label} {size}" for label, size in factors if size > 1) or "TP 1"
    others = worker.pp * worker.cp * ranks
    world = worker.tp * others
    per_pod = -(-world * processes // max(1, worker.component.nodes))
    fix = Fix(
        text=f"give a replica {world * processes} GPUs, or change the parallelism",
        fields={"main/resources/limits/nvidia.com~1gpu": str(per_pod)},
        graph={f"{worker.name}.gpus": per_pod},
    )
    fitting = gpus // others
    is_split = deployment.model is not None and deployment.model.heads % max(1, fitting) == 0
    if fitting and gpus % others == 0 and is_split:
        config = {WORDS["tensor_parallel"][worker.engine]: fitting}
        if worker.get(EXPERTS[worker.engine]) == worker.tp:
            config[EXPERTS[worker.engine]] = fitting
        fix = Fix(text=f"use tensor parallelism {fitting}, or other GPUs", config=config)
    return RuleResult(
        location=worker.settings.location("tensor_parallel"),
        message=f"{worker.name} asks for {shown} = {world} GPUs and has {gpus}: {words}",
        fix=fix,
    )


@rule(
    id="PS206",
    title="more GPUs in a pod than in a node",
    level=Level.ERROR,
    cause="A pod runs on one node, and no node has that many GPUs.",
    effect="The pod stays Pending for ever.",
    remedy="Spread the replica over nodes.",
    source="Kubernetes scheduling; penstock.hardware",
)
def gpus_and_node(deployment: ServingDeployment) -> Iterable[RuleResult]:
    per_node = deployment.gpus_per_node
    for component in deployment.components:
        pod_gpus = component.gpus // max(1, component.nodes)
        if per_node and pod_gpus > per_node:
            worker = next((w for w in deployment.workers if w.name == component.name), None)
            if worker is None:
                continue
            nodes = -(-component.gpus // per_node)
            yield RuleResult(
                location=worker.location("field", "main", "resources"),
                message=f"{pod_gpus} GPUs in one pod, and a node has {per_node}",
                fix=Fix(
                    text="use several nodes",
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


@rule(
    id="PS207",
    title="tensor parallelism beyond NVLink",
    level=Level.WARNING,
    cause="Each layer's all-reduce crosses the network between NVLink domains.",
    effect="900 GB/s become 50 to 100; a step takes several times as long.",
    remedy="Stay inside the domain, 8 GPUs or 72 with NVL72, and use pipeline or data "
    "parallelism beyond.",
    source="penstock.hardware; NVIDIA data sheets",
)
def beyond_nvlink(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers if gpu else ():
        if gpu and worker.tp > gpu.nvlink_domain and not worker.has_attention_dp:
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"tensor parallelism {worker.tp} leaves the NVLink domain of "
                f"{gpu.nvlink_domain} GPUs",
                fix=Fix(text="use pipeline parallelism between the domains"),
            )


@rule(
    id="PS208",
    title="GPUs of a node left over",
    level=Level.NOTE,
    cause="The GPUs of a replica do not divide those of a node.",
    effect="The rest of each node stays unused by this pool.",
    remedy="Use a divisor.",
    source="penstock.hardware",
)
def stranded_gpus(deployment: ServingDeployment) -> Iterable[RuleResult]:
    per_node = deployment.gpus_per_node
    for worker in deployment.workers:
        gpus = worker.component.gpus // max(1, worker.component.nodes)
        if per_node and gpus and gpus < per_node and per_node % gpus:
            yield RuleResult(
                location=worker.location("field", "main", "resources"),
                message=f"{gpus} GPUs a replica leave {per_node % gpus} of a node's {per_node} "
                "unused",
                fix=Fix(text="use a divisor of the node's GPUs"),
            )


@rule(
    id="PS209",
    title="more GPUs than the graph may use",
    level=Level.ERROR,
    cause="The replicas' GPUs add up to more than hardware.nodes has.",
    effect="Some pods stay Pending.",
    remedy="Fewer replicas, or more nodes.",
    source="Kubernetes scheduling",
)
def more_gpus_than_there_are(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.gpu_nodes and deployment.gpus_per_node:
        have = deployment.gpu_nodes * deployment.gpus_per_node
        if deployment.gpus > have:
            yield RuleResult(
                location=Location("", "graph", ("hardware", "nodes")),
                message=f"the graph asks for {deployment.gpus} GPUs, and "
                f"hardware.nodes {deployment.gpu_nodes} of {deployment.gpus_per_node} have {have}",
                fix=Fix(text="fewer replicas, or more nodes"),
            )


@rule(
    id="PS210",
    title="KV heads held more than once",
    level=Level.NOTE,
    cause="Tensor parallelism is above the KV heads, so GPUs hold copies.",
    effect="KV capacity grows no further with more GPUs.",
    remedy="Use attention DP, or more replicas.",
    source="model config (num_key_value_heads)",
)
def kv_heads_repeated(deployment: ServingDeployment) -> Iterable[RuleResult]:
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
                message=f"tensor parallelism {worker.tp} over {model.kv_heads} KV heads: each head "
                f"is held {worker.tp // model.kv_heads} times",
                fix=Fix(text="use attention DP or pipeline parallelism beyond the KV heads"),
            )


@rule(
    id="PS216",
    title="pipeline stages that do not add up",
    level=Level.ERROR,
    cause="pp_partition needs one entry a stage, adding up to the model's layers.",
    effect="The engine refuses to start.",
    remedy="Correct the list, or leave it out.",
    source="TensorRT-LLM llm_args.py",
)
def pipeline_layers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        partition = worker.get("pp_partition")
        if not isinstance(partition, list) or not worker.is_trtllm:
            continue
        layers = deployment.model.layers if deployment.model else None
        total = sum(p for p in partition if isinstance(p, int))
        if len(partition) != worker.pp or (layers and total != layers):
            yield RuleResult(
                location=worker.config("pp_partition"),
                message=f"pp_partition has {len(partition)} stages and {total} layers; PP is "
                f"{worker.pp}" + (f" and the model has {layers} layers" if layers else ""),
                fix=Fix(text="one entry a stage, adding up to the layers"),
            )


@rule(
    id="PS220",
    title="several nodes for what cannot span them",
    level=Level.ERROR,
    cause="Only workers, prefill and decode may be multi-node.",
    effect="Refused at admission.",
    remedy="Remove multinode.",
    source="dynamo#14533; operator webhook",
)
def nodes_of_others(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.nodes > 1 and component.role not in (Role.PREFILL, Role.DECODE, Role.WORKER):
            yield RuleResult(
                location=Location(component.name, "field", ("multinode",)),
                message=f"{component.name} ({component.role}) spans {component.nodes} nodes",
                fix=Fix(text="remove multinode"),
            )
