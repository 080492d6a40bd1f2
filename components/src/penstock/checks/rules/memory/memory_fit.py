"""Rules about GPU memory: do weights, buffers and KV cache fit?"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine
from penstock.memory import MemoryBudget, MemoryInputs, Use
from penstock.memory.budget import GIB
from penstock.memory.remedy import Remedy, remedy
from penstock.serving.deployment import ServingDeployment
from penstock.serving.memory import (
    POOL_BYTES,
    TOKEN_LIMITS,
    memory_budgets,
    missing_facts,
    runs_on_gpu,
)
from penstock.serving.worker import Worker
from penstock.significant import limit_text

# With fewer full-length sequences than this, one long prompt blocks the others.
FEW_SEQUENCES = 2.0
MOST_OF_VLLM = 0.97  # vllm#27508 ran out of memory with 0.98
# Fields of `MemoryInputs`, and the keys that set them.
LIMITS = {"set_pool_gib": POOL_BYTES, "max_kv_tokens": TOKEN_LIMITS}


def arithmetic(budget: MemoryBudget) -> str:
    """`weights 64.5 + runtime 3.5 + … of 79.6 GiB`"""
    uses = " + ".join(f"{line.use} {line.gib:.1f}" for line in budget.lines)
    return f"{uses} = {budget.used_gib:.1f} of {budget.inputs.gpu.memory_gib} GiB"


def _fix(deployment: ServingDeployment, worker: Worker, change: Remedy | None) -> Fix:
    if change is None:
        return Fix(text="Use a GPU with more memory or a smaller model.")
    config: dict[str, object] = {}
    graph: dict[str, object] = {}
    fields: dict[str, object] = {}
    changes = change.changes
    for name, keys in LIMITS.items():
        if name in changes:
            key = keys[worker.engine]
            config[key] = 0 if key == POOL_BYTES[Engine.TRTLLM] else None  # means no limit
    if "fraction" in changes:
        config[COMMON_SETTINGS["memory_fraction"][worker.engine]] = changes["fraction"]
    if "kv_dtype" in changes:
        key = COMMON_SETTINGS["kv_dtype"][worker.engine]
        config[key] = changes["kv_dtype"]
        if deployment.is_disaggregated:  # PS414: both pools must agree
            graph[f"engine.config.{key}"] = changes["kv_dtype"]
    if "context" in changes:
        graph["model.context_length"] = changes["context"]
        config[COMMON_SETTINGS["context_length"][worker.engine]] = changes["context"]
    if "tp" in changes:
        key = COMMON_SETTINGS["tensor_parallel"][worker.engine]
        world = changes["tp"] * worker.world // worker.tp
        gpus = -(-world // max(1, worker.component.nodes))
        graph |= {f"{worker.name}.gpus": gpus, f"{worker.name}.config.{key}": changes["tp"]}
        config[key] = changes["tp"]
        fields["main/resources/limits/nvidia.com~1gpu"] = str(gpus)
    return Fix(text=change.text, config=config, graph=graph, fields=fields)


def _smallest_change(inputs: MemoryInputs) -> Remedy | None:
    """The smallest change that satisfies PS303, else the smallest that fits one sequence."""
    return remedy(inputs, _is_ample) or remedy(inputs, lambda b: b.rank_sequences >= 1)


def _is_ample(budget: MemoryBudget) -> bool:
    return budget.rank_sequences >= 1 and budget.sequences >= FEW_SEQUENCES


def model_does_not_fit(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, budget in memory_budgets(deployment):
        if budget.pool_gib <= 0:
            change = _smallest_change(budget.inputs)
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"{worker.name} does not fit in the memory of one "
                f"{budget.inputs.gpu.name}: {arithmetic(budget)}; KV cache: "
                f"{budget.pool_how} = {budget.pool_gib:.1f} GiB",
                fix=_fix(deployment, worker, change),
            )


def no_full_length_sequence(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, budget in memory_budgets(deployment):
        if budget.pool_gib > 0 and budget.rank_sequences < 1:
            change = _smallest_change(budget.inputs)
            yield RuleResult(
                location=_decisive(worker, change),
                message=f"no sequence of {budget.inputs.context:,} tokens fits in the KV cache "
                f"of {worker.name}{_rank(budget)}: {_capacity(budget)} of "
                f"{budget.token_bytes / 1024:.1f} KiB",
                fix=_fix(deployment, worker, change),
            )


def _rank(budget: MemoryBudget) -> str:
    ranks = budget.inputs.attention_ranks
    return f", which each of the {ranks} attention-DP ranks holds for itself" if ranks > 1 else ""


def _capacity(budget: MemoryBudget) -> str:
    """`12.3 GiB (0.9 × (79.6 − 65.9)) hold 170,000 tokens`"""
    tokens, limit = f"{budget.kv_tokens:,} tokens", budget.inputs.max_kv_tokens
    if limit and budget.kv_tokens == limit:
        return f"the KV cache is limited to {tokens}"
    return f"{budget.pool_gib:.1f} GiB ({budget.pool_how}) hold {tokens}"


def _decisive(worker: Worker, change: Remedy | None) -> Location:
    """The location of a configured limit if removing it is enough, else of the context length."""
    for name, keys in LIMITS.items():
        if change is not None and name in change.changes and keys[worker.engine]:
            return worker.config_location(keys[worker.engine])
    return worker.settings.location("context_length")


def few_full_length_sequences(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, budget in memory_budgets(deployment):
        if budget.rank_sequences >= 1 and budget.sequences < FEW_SEQUENCES:
            change = remedy(budget.inputs, _is_ample)
            yield RuleResult(
                location=_decisive(worker, change),
                message=f"only {budget.sequences:.2f} sequences of {budget.inputs.context:,} "
                f"tokens fit in the KV cache of {worker.name}: {_capacity(budget)}",
                fix=_fix(deployment, worker, change),
            )


def large_transfer_buffers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, budget in memory_budgets(deployment):
        buffer = next((line for line in budget.lines if line.use is Use.TRANSFER), None)
        if buffer and buffer.gib > 0.25 * budget.inputs.gpu.memory_gib:
            yield RuleResult(
                location=worker.config_location("cache_transceiver_config.max_tokens_in_buffer"),
                message=f"transfer buffers use {buffer.gib:.1f} GiB of "
                f"{budget.inputs.gpu.memory_gib} GiB: {buffer.how}",
                fix=Fix(
                    text="Set transceiver_runtime to PYTHON with backend NIXL on both "
                    "pools; it needs no transfer buffers.",
                    config={
                        "cache_transceiver_config.backend": "NIXL",
                        "cache_transceiver_config.transceiver_runtime": "PYTHON",
                    },
                    graph={
                        "kv_transfer.backend": "nixl",
                        "engine.config.cache_transceiver_config.transceiver_runtime": "PYTHON",
                    },
                ),
            )


def token_limit_too_large(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, budget in memory_budgets(deployment):
        limit, key = budget.inputs.max_kv_tokens, TOKEN_LIMITS.get(worker.engine, "")
        # vLLM allocates as many blocks as configured, per group of layers: see `_token_limit`.
        if (
            limit
            and budget.token_bytes
            and budget.pool_gib > 0
            and worker.engine is not Engine.VLLM
        ):
            capacity = int(budget.pool_gib * GIB / budget.token_bytes)
            if limit > capacity:
                yield RuleResult(
                    location=worker.config_location(key),
                    message=f"{key} is {limit:,} tokens, but {budget.pool_gib:.1f} GiB of KV "
                    f"cache hold only {capacity:,}",
                    fix=Fix(
                        text=f"Remove {key}; the engine then uses all free memory.",
                        config={key: None},
                    ),
                )


def memory_fraction_too_large(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        fraction = worker.value("memory_fraction")
        setting = worker.settings.common("memory_fraction")
        if setting and isinstance(fraction, (int, float)) and not 0 < fraction <= 0.95:
            is_possible = 0 < fraction <= 1
            in_file = worker.is_trtllm and setting.location.what == "config"
            if in_file and not 0 <= fraction <= 1:
                continue  # PS102 reports it; its bounds include 0, which the executor refuses
            # vLLM measures the activations and counts them in the fraction.
            may_work = worker.engine is Engine.VLLM and fraction <= MOST_OF_VLLM
            yield RuleResult(
                location=setting.location,
                message=f"the memory fraction is {limit_text(fraction)}, "
                + (
                    f"which leaves {1 - fraction:.0%} of the memory"
                    if is_possible
                    else "which is not between 0 and 1"
                ),
                fix=Fix(
                    text="Set the memory fraction to 0.9.",
                    config={COMMON_SETTINGS["memory_fraction"][worker.engine]: 0.9},
                ),
                level=Level.ERROR if not is_possible else Level.NOTE if may_work else None,
            )


def memory_checks_skipped(deployment: ServingDeployment) -> Iterable[RuleResult]:
    seen = set()
    for worker in filter(runs_on_gpu, deployment.workers):
        reason = missing_facts(deployment, worker)
        if not reason or reason in seen:
            continue
        seen.add(reason)
        is_all = deployment.gpu is None or deployment.model is None
        of = "memory, attention heads and experts" if is_all else f"{worker.name}'s memory"
        yield RuleResult(
            location=worker.settings.location("model"),
            message=f"the checks of {of} are skipped: {reason}",
            fix=Fix(text=_missing_fact(deployment, worker)),
        )


def _missing_fact(deployment: ServingDeployment, worker: Worker) -> str:
    steps = []
    if deployment.gpu is None:
        steps.append("Set hardware.gpu or pass --gpu.")
    if deployment.model is None:
        steps.append("Pass --model with a folder that contains config.json.")
    return " ".join(steps) or f"Compute the memory of {worker.name} by hand."
