"""Rules about what tensor parallelism must divide: quantization blocks, KV heads, devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

DEVICES = "CUDA_VISIBLE_DEVICES"


def cut_blocks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts = deployment.facts_of(worker)
        if facts is None or facts.quantization != "fp8" or facts.weight_block is None:
            continue
        if worker.engine not in (Engine.VLLM, Engine.SGLANG) or not worker.is_laid_out:
            continue
        if facts.experts and facts.expert_width:
            if _has_four_bit_experts(worker, facts):
                continue
            ranks = _expert_ranks(worker)
            versions = Versions(vllm="<0.31")
            yield from _cut(worker, facts, facts.expert_width, ranks, versions)
        elif not facts.experts and facts.dense_width:
            yield from _cut(worker, facts, facts.dense_width, worker.tp)


def _has_four_bit_experts(worker: Worker, facts: ModelFacts) -> bool:
    """Whether SGLang loads DeepSeek-V4's MXFP4 experts without FP8 blocks
    (layers/quantization/fp8.py get_quant_method since 0.5.14)."""
    is_v4 = facts.kind.startswith("deepseek_v4")
    return is_v4 and worker.get("moe-runner-backend") in ("marlin", "humming")


def _expert_ranks(worker: Worker) -> int:
    """GPUs that share one expert."""
    if worker.engine is Engine.VLLM:
        return 1 if worker.ep > 1 else worker.tp * worker.dp * worker.cp
    return max(1, worker.tp // worker.ep)


def _cut(
    worker: Worker, facts: ModelFacts, width: int, ranks: int, versions: Versions | None = None
) -> Iterator[RuleResult]:
    block = facts.weight_block[0] if facts.weight_block else 0
    if not block or ranks == 1 or (width % ranks == 0 and width // ranks % block == 0):
        return
    share = f"{width / ranks:g}"
    what = "expert" if facts.experts else "MLP"
    key = COMMON_SETTINGS["tensor_parallel"][worker.engine]
    fitting = gcd(ranks, width // block)
    yield RuleResult(
        location=worker.settings.location("tensor_parallel"),
        message=f"each of {ranks} GPUs gets {share} of the {width} columns of an {what}, which is "
        f"not a multiple of the quantization block {block}",
        fix=Fix(text=f"Use {fitting} GPUs for a worker ({key}), or expert parallelism.")
        if facts.experts
        else Fix(text=f"Set {key} to {fitting}.", config={key: fitting}),
        versions=versions,
    )


def indivisible_kv_heads(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts = deployment.facts_of(worker)
        if worker.engine not in (Engine.VLLM, Engine.SGLANG) or not worker.is_laid_out:
            continue
        if facts is None or facts.is_mla or not facts.kv_heads:
            continue
        ranks = worker.tp // worker.attention_ranks
        if max(ranks, facts.kv_heads) % min(ranks, facts.kv_heads):
            key = COMMON_SETTINGS["tensor_parallel"][worker.engine]
            fitting = gcd(ranks, facts.kv_heads)
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"{facts.kv_heads} KV heads cannot be divided among {ranks} GPUs",
                fix=Fix(text=f"Set {key} to {fitting}.", config={key: fitting}),
            )


def visible_devices(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        text = worker.env(DEVICES)
        nodes = max(1, worker.component.nodes)
        if not text or not worker.is_laid_out or not worker.settings.is_complete or nodes > 1:
            continue
        if worker.engine is Engine.MOCKER or "data-parallel" in " ".join(worker.launch.arguments):
            continue
        listed = [item.strip() for item in text.split(",")]
        if not all(item.isdigit() for item in listed):
            continue  # UUIDs, `all`, or a text that only the cluster knows
        if (
            deployment.pods[worker.name].containers[0].cursor["securityContext"]["privileged"].value
            is True
        ):
            continue  # it has all devices of the node, whatever it requests
        owned = worker.component.gpus
        seen = _seen(listed, owned)
        if seen < worker.world and (seen < len(listed) or deployment.processes(worker.name) == 1):
            missing = (
                f" and the pod has only {owned}, so the process sees {seen}"
                if seen < len(listed)
                else ""
            )
            yield RuleResult(
                location=worker.location("env", DEVICES),
                message=f"{DEVICES} is {text}{missing}, but the parallelism needs {worker.world} "
                "GPUs",
                fix=Fix(text=f"Remove {DEVICES}.", env={DEVICES: None})
                if deployment.processes(worker.name) == 1
                else Fix(text=f"List {worker.world} of the pod's GPUs in {DEVICES}."),
            )


def _seen(listed: list[str], owned: int) -> int:
    """The number of GPUs before the first that the pod does not have."""
    for at, item in enumerate(listed):
        if owned and int(item) >= owned:
            return at
    return len(listed)
