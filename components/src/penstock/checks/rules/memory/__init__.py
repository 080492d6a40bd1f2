"""Do weights, buffers and KV cache fit in GPU memory, and which change makes them fit?"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checks.finding import Fix
from penstock.engines.settings import COMMON_SETTINGS, Location
from penstock.manifests.deployment import Engine
from penstock.memory import MemoryBudget, MemoryInputs, Use, memory_budget
from penstock.memory.remedy import HIGHEST, Remedy, remedy
from penstock.serving.deployment import ServingDeployment
from penstock.serving.memory import (
    POOL_BYTES,
    TOKEN_LIMITS,
    memory_inputs,
    missing_facts,
    runs_on_gpu,
)
from penstock.serving.worker import Worker

# With fewer full-length sequences than this, one long prompt blocks the others.
FEW_SEQUENCES = 2.0
# Share of the weights by which they may be larger than estimated: NVFP4 checkpoints keep some
# layers in 16 bits. DeepSeek-R1-0528-NVFP4-v2 takes 10 and 11% more in logs of SGLang.
UNCERTAIN = 0.12
# Fields of `MemoryInputs`, and the keys that set them.
LIMITS = {"set_pool_gib": POOL_BYTES, "max_kv_tokens": TOKEN_LIMITS}
# Fields of `MemoryInputs`, and the settings that they come from.
SETTINGS = {
    "fraction": "memory_fraction",
    "kv_dtype": "kv_dtype",
    "context": "context_length",
    "tp": "tensor_parallel",
}


def memory_sum(budget: MemoryBudget) -> str:
    """`weights 64.5 + runtime 3.5 + … of 79.2 GiB`"""
    uses = " + ".join(f"{line.use} {line.gib:.1f}" for line in budget.lines)
    return f"{uses} = {budget.used_gib:.1f} of {budget.inputs.gpu.memory_gib} GiB"


def cache_size(budget: MemoryBudget) -> str:
    """`12.3 GiB (0.9 × (79.2 − 65.5)) hold 170,000 tokens`"""
    tokens, limit = f"{budget.kv_tokens:,} tokens", budget.inputs.max_kv_tokens
    if limit and budget.kv_tokens == limit:
        return f"the KV cache is limited to {tokens}"
    return f"{budget.pool_gib:.1f} GiB ({budget.pool_how}) hold {tokens}"


def ample_change(inputs: MemoryInputs) -> Remedy | None:
    """The smallest change that lets the KV cache hold more than one full-length sequence."""
    return remedy(
        inputs,
        lambda budget: budget.rank_sequences >= 1 and budget.sequences >= FEW_SEQUENCES,
    )


def smallest_change(inputs: MemoryInputs) -> Remedy | None:
    """As `ample_change`, else the smallest change that fits one sequence."""
    return ample_change(inputs) or remedy(inputs, lambda budget: budget.rank_sequences >= 1)


def place_of_change(worker: Worker, change: Remedy | None) -> Location:
    """The location of a configured limit if removing it is enough, else of the context length."""
    for name, keys in LIMITS.items():
        if change is not None and name in change.changes and keys[worker.engine]:
            return worker.config_location(keys[worker.engine])
    return worker.settings.location("context_length")


def memory_fix(deployment: ServingDeployment, worker: Worker, change: Remedy | None) -> Fix:
    """What to set for a change; without one, the model needs another GPU."""
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
    for name, setting in SETTINGS.items():
        if name in changes:
            config[COMMON_SETTINGS[setting][worker.engine]] = changes[name]
    if "kv_dtype" in changes and deployment.is_disaggregated:  # PS414: both pools must agree
        key = COMMON_SETTINGS["kv_dtype"][worker.engine]
        graph[f"engine.config.{key}"] = changes["kv_dtype"]
    if "context" in changes:
        graph["model.context_length"] = changes["context"]
    if "tp" in changes:
        key = COMMON_SETTINGS["tensor_parallel"][worker.engine]
        world = changes["tp"] * worker.world // worker.tp
        gpus = -(-world // max(1, worker.component.nodes))
        graph |= {f"{worker.name}.gpus": gpus, f"{worker.name}.config.{key}": changes["tp"]}
        fields["main/resources/limits/nvidia.com~1gpu"] = str(gpus)
    return Fix(text=change.text, config=config, graph=graph, fields=fields)


def fraction_fix(deployment: ServingDeployment, worker: Worker) -> Fix:
    """A lower memory fraction, if the weights and the KV cache of one long prompt fit into it.
    Otherwise the rest of the memory must suffice, so the worker needs less of it."""
    key = COMMON_SETTINGS["memory_fraction"].get(worker.engine)
    lower = Fix(
        text=f"Set the memory fraction to {HIGHEST:g}.", config={key: HIGHEST} if key else {}
    )
    if worker.is_trtllm:
        return lower  # its fraction is of the memory that the weights leave
    names = ("max_sequences", "max_batch_tokens")
    limits = [name for limit in names if (name := COMMON_SETTINGS[limit].get(worker.engine))]
    less = f"reduce {' and '.join(limits)}, or use more GPUs" if limits else "use more GPUs"
    inputs = memory_inputs(deployment, worker, fraction=HIGHEST)
    if inputs is None:
        return Fix(
            text=f"If the weights and the KV cache fit into {HIGHEST:.0%} of the memory, set the "
            f"memory fraction to {HIGHEST:g}. Otherwise {less}."
        )
    budget = memory_budget(inputs)
    loaded = sum(line.gib for line in budget.lines if line.use in (Use.WEIGHTS, Use.DRAFT))
    if budget.rank_sequences >= 1 and budget.pool_gib >= UNCERTAIN * loaded:
        return lower
    return Fix(
        text=f"{less[0].upper()}{less[1:]}: the weights take {loaded:.1f} GiB of "
        f"{inputs.gpu.memory_gib} GiB, so a memory fraction of {HIGHEST:g} leaves too little for "
        "the KV cache."
    )


def skipped_memory(deployment: ServingDeployment) -> Iterator[tuple[Worker, str]]:
    """The reasons why the memory of a worker cannot be computed, each with the first worker."""
    workers: dict[str, Worker] = {}
    for worker in filter(runs_on_gpu, deployment.workers):
        workers.setdefault(missing_facts(deployment, worker), worker)
    yield from ((worker, reason) for reason, worker in workers.items() if reason)
