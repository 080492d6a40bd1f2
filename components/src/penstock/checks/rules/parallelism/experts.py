"""Rules about the parallelism of experts."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.parallelism.heads import dividing_tp
from penstock.manifests.deployment import Engine
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# The key of each engine that sets expert parallelism.
EXPERT_KEYS = {
    Engine.TRTLLM: "moe_expert_parallel_size",
    Engine.VLLM: "enable-expert-parallel",
    Engine.SGLANG: "ep-size",
}


def moe_parallelism_mismatch(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if not worker.is_trtllm or not worker.is_laid_out:
            continue
        moe_tp = positive_int(worker.get("moe_tensor_parallel_size"))
        moe_ep = positive_int(worker.get("moe_expert_parallel_size"))
        if moe_ep and moe_tp and moe_tp * moe_ep != worker.tp:
            ep = worker.tp if worker.tp % moe_ep else moe_ep
            fewer = Fix(
                text=f"Set moe_expert_parallel_size to {ep} and moe_tensor_parallel_size "
                f"to {worker.tp // ep}.",
                config={
                    "moe_expert_parallel_size": ep,
                    "moe_tensor_parallel_size": worker.tp // ep,
                },
            )
            yield RuleResult(
                location=worker.config_location("moe_expert_parallel_size"),
                message=f"moe_tensor_parallel_size {moe_tp} × moe_expert_parallel_size {moe_ep} "
                f"is {moe_tp * moe_ep}, but tensor_parallel_size is {worker.tp}",
                fix=_more_tensor_parallelism(deployment, worker, moe_tp * moe_ep) or fewer,
            )
        elif moe_ep and not moe_tp and worker.tp % moe_ep:
            yield RuleResult(
                location=worker.config_location("moe_expert_parallel_size"),
                message=f"moe_expert_parallel_size {moe_ep} does not divide "
                f"tensor_parallel_size {worker.tp}",
                fix=_more_tensor_parallelism(deployment, worker, moe_ep)
                or _divisor(deployment, worker, moe_ep),
            )


def _more_tensor_parallelism(
    deployment: ServingDeployment, worker: Worker, factor: int
) -> Fix | None:
    """Tensor parallelism over all GPUs of the replica, if the experts' ``factor`` divides it."""
    gpus = worker.component.gpus // max(1, deployment.processes(worker.name))
    tp = gpus // (worker.world // worker.tp)
    model = deployment.model
    is_split = worker.has_attention_dp or model is None or model.heads % max(1, tp) == 0
    if tp <= worker.tp or tp % factor or not is_split:
        return None
    if worker.get("moe_tensor_parallel_size") and tp != factor:
        return None
    text = f"Set tensor_parallel_size to {tp}, which the {gpus} GPUs of each replica allow."
    return Fix(text=text, config={"tensor_parallel_size": tp})


def _divisor(deployment: ServingDeployment, worker: Worker, limit: int) -> Fix:
    """The largest expert parallelism up to ``limit`` that divides TP and the experts."""
    experts = deployment.model.experts if deployment.model else 0
    sizes = range(1, limit)
    ep = max(n for n in sizes if worker.tp % n == 0 and (experts or 0) % n == 0)
    return Fix(
        text=f"Set moe_expert_parallel_size to {ep}.", config={"moe_expert_parallel_size": ep}
    )


def indivisible_experts(deployment: ServingDeployment) -> Iterable[RuleResult]:
    model = deployment.model
    for worker in deployment.workers if model else ():
        if worker.engine is Engine.VLLM or not worker.is_laid_out:
            continue
        # SGLang divides the redundant ones too (moe_ep_setup.py 0.5.21).
        redundant = positive_int(worker.get("ep-num-redundant-experts")) or 0
        experts = model.experts + redundant if model and model.experts else 0
        if model and worker.ep > 1 and experts % worker.ep:
            tp = dividing_tp(deployment, worker)  # to which PS202 lowers it
            size = _expert_setting(worker, gcd(min(worker.ep, tp), experts))
            yield RuleResult(
                location=worker.config_location(EXPERT_KEYS[worker.engine]),
                message=f"{experts} experts are not divisible by expert parallelism {worker.ep}",
                fix=Fix(
                    text=f"Set {EXPERT_KEYS[worker.engine]} to {str(size).lower()}.",
                    config={EXPERT_KEYS[worker.engine]: size},
                ),
            )


def expert_parallelism_for_dense_model(deployment: ServingDeployment) -> Iterable[RuleResult]:
    model = deployment.model
    for worker in deployment.workers if model else ():
        if model and worker.ep > 1 and not model.experts:
            yield RuleResult(
                location=worker.config_location(EXPERT_KEYS[worker.engine]),
                message=f"expert parallelism is {worker.ep}, but {model.name} has no experts",
                fix=Fix(
                    text="Disable expert parallelism: the model is dense.",
                    config={EXPERT_KEYS[worker.engine]: _expert_setting(worker, 1)},
                ),
                level=Level.ERROR if worker.engine is Engine.VLLM else None,
            )


def _expert_setting(worker: Worker, ranks: int) -> int | bool:
    """The engine's value for expert parallelism over ``ranks``: vLLM uses all ranks or one."""
    return ranks == worker.ep if worker.engine is Engine.VLLM else ranks
