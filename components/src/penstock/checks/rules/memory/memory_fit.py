"""Rules of memory: weights, KV cache and buffers against what the GPU has."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import WORDS, Location
from penstock.manifests.deployment import Engine
from penstock.memory import MemoryBudget, MemoryInputs
from penstock.memory.budget import GIB
from penstock.memory.remedy import Remedy, remedy
from penstock.serving.deployment import ServingDeployment
from penstock.serving.memory import POOL_BYTES, TOKEN_LIMITS, memory_budgets, missing_facts
from penstock.serving.worker import Worker

# Fewer sequences of full length than this at once, and one long prompt stops the others.
FEW = 2.0
# Fields of `MemoryInputs`, and the keys that set them.
LIMITS = {"set_pool_gib": POOL_BYTES, "max_kv_tokens": TOKEN_LIMITS}


def arithmetic(found: MemoryBudget) -> str:
    """`weights 64.5 + runtime 3.5 + … of 79.6 GiB`"""
    uses = " + ".join(f"{line.name} {line.gib:.1f}" for line in found.lines)
    return f"{uses} = {found.used_gib:.1f} of {found.inputs.gpu.memory_gib} GiB"


def _fix(deployment: ServingDeployment, worker: Worker, found: Remedy | None) -> Fix:
    if found is None:
        return Fix(text="use a GPU with more memory, or a smaller model")
    config: dict[str, object] = {}
    graph: dict[str, object] = {}
    fields: dict[str, object] = {}
    changes = found.changes
    for name, keys in LIMITS.items():
        if name in changes:
            key = keys[worker.engine]
            config[key] = 0 if key == POOL_BYTES[Engine.TRTLLM] else None  # its "no limit"
    if "fraction" in changes:
        config[WORDS["memory_fraction"][worker.engine]] = changes["fraction"]
    if "kv_dtype" in changes:
        key = WORDS["kv_dtype"][worker.engine]
        config[key] = changes["kv_dtype"]
        if deployment.is_disaggregated:  # PS414: of both pools or of neither
            graph[f"engine.config.{key}"] = changes["kv_dtype"]
    if "context" in changes:
        graph["model.context_length"] = changes["context"]
        config[WORDS["context_length"][worker.engine]] = changes["context"]
    if "tp" in changes:
        key = WORDS["tensor_parallel"][worker.engine]
        world = changes["tp"] * worker.world // worker.tp
        gpus = -(-world // max(1, worker.component.nodes))
        graph |= {f"{worker.name}.gpus": gpus, f"{worker.name}.config.{key}": changes["tp"]}
        config[key] = changes["tp"]
        fields["main/resources/limits/nvidia.com~1gpu"] = str(gpus)
    return Fix(text=found.text, config=config, graph=graph, fields=fields)


def _way(inputs: MemoryInputs) -> Remedy | None:
    """What makes it fit so that PS303 has nothing to say, if anything does."""
    return remedy(inputs, _is_ample) or remedy(inputs, lambda b: b.rank_sequences >= 1)


def _is_ample(found: MemoryBudget) -> bool:
    return found.rank_sequences >= 1 and found.sequences >= FEW


@rule(
    id="PS301",
    title="the model does not fit",
    level=Level.ERROR,
    cause="Weights, runtime, buffers and graphs leave no memory for a KV cache.",
    effect="Out of memory at the start, after the weights were loaded.",
    remedy="More GPUs a replica, a larger GPU, or fp8 KV.",
    source="penstock.memory; vllm#23278; dynamo#12276 (buffers)",
)
def weights_too_big(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, found in memory_budgets(deployment):
        if found.pool_gib <= 0:
            way = _way(found.inputs)
            yield RuleResult(
                location=worker.settings.location("tensor_parallel"),
                message=f"{worker.name} does not fit one {found.inputs.gpu.name}: "
                f"{arithmetic(found)}, "
                f"KV cache {found.pool_how} = {found.pool_gib:.1f} GiB",
                fix=_fix(deployment, worker, way),
            )


@rule(
    id="PS302",
    title="not one sequence of full length fits",
    level=Level.ERROR,
    cause="The KV cache holds fewer tokens than the context length.",
    effect="vLLM refuses to start; TensorRT-LLM shortens max_seq_len or never schedules the "
    "prompt.",
    remedy="A shorter context, fp8 KV, or more GPUs a replica.",
    source="penstock.memory; vllm#34076",
)
def context_too_long(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, found in memory_budgets(deployment):
        if found.pool_gib > 0 and found.rank_sequences < 1:
            way = _way(found.inputs)
            yield RuleResult(
                location=_decisive(worker, way),
                message=f"not one sequence of {found.inputs.context:,} tokens fits {worker.name}"
                f"{_rank(found)}: {_held(found)} of {found.token_bytes / 1024:.1f} KiB",
                fix=_fix(deployment, worker, way),
            )


def _rank(found: MemoryBudget) -> str:
    ranks = found.inputs.attention_ranks
    return f", each of whose {ranks} attention DP ranks keeps its own" if ranks > 1 else ""


def _held(found: MemoryBudget) -> str:
    """`12.3 GiB of KV cache (0.9 × (79.6 − 65.9)) hold 170,000 tokens`"""
    tokens, limit = f"{found.kv_tokens:,} tokens", found.inputs.max_kv_tokens
    if limit and found.kv_tokens == limit:
        return f"the KV cache is limited to {tokens}"
    return f"{found.pool_gib:.1f} GiB of KV cache ({found.pool_how}) hold {tokens}"


def _decisive(worker: Worker, way: Remedy | None) -> Location:
    """Where a limit stands that somebody set, if lifting it is enough; else the context length."""
    for name, keys in LIMITS.items():
        if way is not None and name in way.changes and keys[worker.engine]:
            return worker.config(keys[worker.engine])
    return worker.settings.location("context_length")


@rule(
    id="PS303",
    title="hardly a sequence of full length fits",
    level=Level.WARNING,
    cause="The KV cache holds less than two sequences of the context length.",
    effect="One long prompt stops or evicts the others.",
    remedy="A shorter context, fp8 KV, or more GPUs a replica.",
    source="penstock.memory",
)
def few_sequences(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, found in memory_budgets(deployment):
        if found.rank_sequences >= 1 and found.sequences < FEW:
            way = remedy(found.inputs, _is_ample)
            yield RuleResult(
                location=_decisive(worker, way),
                message=f"{found.sequences:.2f} sequences of {found.inputs.context:,} tokens fit "
                f"{worker.name}: {_held(found)}",
                fix=_fix(deployment, worker, way),
            )


@rule(
    id="PS304",
    title="transfer buffers that eat the cache",
    level=Level.WARNING,
    cause="The C++ transceiver sets aside max_tokens_in_buffer tokens to send and to receive.",
    effect="A quarter of the GPU or more is not cache; a published recipe asked for 194.9 GiB.",
    remedy="The Python runtime, or a smaller context.",
    source="dynamo#12276; TensorRT-LLM cacheTransBuffer",
)
def big_buffers(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, found in memory_budgets(deployment):
        buffer = next((line for line in found.lines if line.name == "transfer buffers"), None)
        if buffer and buffer.gib > 0.25 * found.inputs.gpu.memory_gib:
            yield RuleResult(
                location=worker.config("cache_transceiver_config.max_tokens_in_buffer"),
                message=f"transfer buffers take {buffer.gib:.1f} GiB of "
                f"{found.inputs.gpu.memory_gib}: "
                f"{buffer.how}",
                fix=Fix(
                    text="the Python runtime needs none, with NIXL, on both pools",
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


@rule(
    id="PS305",
    title="more KV tokens than fit",
    level=Level.WARNING,
    cause="The limit of tokens is above what the memory holds.",
    effect="The engine takes less and logs it.",
    remedy="Leave it out.",
    source="TensorRT-LLM llm_args.py (max_tokens); penstock.memory",
)
def too_many_tokens(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, found in memory_budgets(deployment):
        limit, key = found.inputs.max_kv_tokens, TOKEN_LIMITS.get(worker.engine, "")
        # vLLM makes as many blocks as it is told, in groups of layers: see `_token_limit`.
        if limit and found.token_bytes and found.pool_gib > 0 and worker.engine is not Engine.VLLM:
            holds = int(found.pool_gib * GIB / found.token_bytes)
            if limit > holds:
                yield RuleResult(
                    location=worker.config(key),
                    message=f"{key} {limit:,}, and {found.pool_gib:.1f} GiB hold {holds:,}",
                    fix=Fix(text="leave it out: the engine fills what is free", config={key: None}),
                )


@rule(
    id="PS306",
    title="a memory fraction without reserve",
    level=Level.WARNING,
    cause="More than 95 % of the memory is given to the KV cache, or a part that is none.",
    effect="Out of memory later, when activations, graphs or transfers grow; above 1 or at 0 "
    "the engine refuses to start.",
    remedy="0.8 to 0.9.",
    source="recipes/gpt-oss-120b/trtllm (0.8, 0.85); vllm#27508",
)
def greedy_fraction(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        fraction = worker.value("memory_fraction")
        said = worker.settings.word("memory_fraction")
        if said and isinstance(fraction, (int, float)) and not 0 < fraction <= 0.95:
            is_possible = 0 < fraction <= 1
            if worker.is_trtllm and not is_possible and said.location.what == "config":
                continue  # PS102 says it
            yield RuleResult(
                location=said.location,
                message=f"memory fraction {fraction:g}" + ("" if is_possible else ": none is that"),
                fix=Fix(
                    text="leave room for what grows later",
                    config={WORDS["memory_fraction"][worker.engine]: 0.9},
                ),
                level=None if is_possible else Level.ERROR,
            )


def why_unknown(deployment: ServingDeployment) -> str:
    """What the memory of the workers cannot be reckoned without."""
    reasons = (
        missing_facts(deployment, worker) for worker in deployment.workers if _computes(worker)
    )
    return next(filter(None, reasons), "no worker computes on a GPU")


def _computes(worker: Worker) -> bool:
    return worker.engine is not Engine.MOCKER and bool(worker.component.gpus)


@rule(
    id="PS307",
    title="memory that could not be reckoned",
    level=Level.NOTE,
    cause="The GPU or the model's shape is not known here.",
    effect="Nothing about memory, heads and experts was checked.",
    remedy="hardware.gpu in the graph, a folder with config.json, or --gpu and --model.",
    source="penstock",
)
def not_reckoned(deployment: ServingDeployment) -> Iterable[RuleResult]:
    seen = set()
    for worker in filter(_computes, deployment.workers):
        reason = missing_facts(deployment, worker)
        if not reason or reason in seen:
            continue
        seen.add(reason)
        is_all = deployment.gpu is None or deployment.model is None
        what = "memory, heads and experts are" if is_all else f"{worker.name}'s memory is"
        yield RuleResult(
            location=worker.settings.location("model"),
            message=f"{what} not checked: {reason}",
            fix=Fix(text="state them" if is_all else "reckon it by hand"),
        )
