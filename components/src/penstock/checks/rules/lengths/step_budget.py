"""Rules about what must fit in one step of vLLM besides prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

BUDGET = "max-num-batched-tokens"
KERNEL_BLOCK = 16  # tokens; attention backends need blocks of a multiple of it
# Methods that compute their draft tokens in parallel, so that each token needs a slot.
PARALLEL = ("dflash", "dspark")


def _vllm_workers(deployment: ServingDeployment) -> Iterator[tuple[Worker, int]]:
    """The workers that set the tokens of a step, with that number."""
    for worker in deployment.workers:
        budget = worker.count("max_batch_tokens")
        if worker.engine is Engine.VLLM and budget is not None:
            yield worker, budget


def no_tokens_left(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, budget in _vllm_workers(deployment):
        section = worker.value("speculation")
        sequences = worker.count("max_sequences")
        slots = _slots(section) if isinstance(section, Mapping) else 0
        if not slots:
            continue
        if sequences and slots * sequences >= budget:
            yield _too_few(
                worker,
                budget,
                slots * sequences + 1,
                f"{slots} slots for draft tokens × max-num-seqs {sequences} leave none of the "
                f"{budget} tokens of a step",
                Versions(vllm=">=0.20,<0.28"),
            )
        extra = slots + 1 if section.get("method") in PARALLEL else slots
        if extra >= budget:
            yield _too_few(
                worker,
                budget,
                extra + 1,
                f"{extra} slots for draft tokens leave none of the {budget} tokens of a step",
                Versions(vllm=">=0.28"),
            )


def _slots(section: Mapping[str, object]) -> int:
    """As `max_num_new_slots_for_drafting` of 0.23.0 to 0.26.0, for one sequence."""
    tokens = positive_int(section.get("num_speculative_tokens")) or 0
    is_parallel = section.get("parallel_drafting") is True or section.get("method") in PARALLEL
    uses_model = section.get("method") == "draft_model"
    return (max(0, tokens - 1) if is_parallel else 0) + (1 if uses_model else 0)


def _too_few(
    worker: Worker, budget: int, least: int, message: str, versions: Versions
) -> RuleResult:
    raised = max(8192, 1 << (least - 1).bit_length())
    return RuleResult(
        location=worker.settings.location("max_batch_tokens"),
        message=message,
        fix=Fix(text=f"Raise {BUDGET} to {raised}.", config={BUDGET: raised}),
        versions=versions,
    )


def block_exceeds_step(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, budget in _vllm_workers(deployment):
        facts = deployment.facts_of(worker)
        if worker.get("enable-prefix-caching") is not True or facts is None:
            continue
        block = _smallest_block(worker, facts)
        if block is not None and block > budget:
            raised = 1 << (block - 1).bit_length()
            yield RuleResult(
                location=worker.settings.location("max_batch_tokens"),
                message=f"{BUDGET} is {budget}, but the recurrent layers of "
                f"{worker.value('model')} require blocks of at least {block} tokens",
                fix=Fix(text=f"Raise {BUDGET} to {raised}.", config={BUDGET: raised}),
            )


def _smallest_block(worker: Worker, facts: ModelFacts) -> int | None:
    """Tokens of the smallest block that vLLM can choose; None if unknown.

    A KV cache type of one byte, and backends with larger blocks, only raise it.
    """
    page = facts.recurrent.page_bytes(worker.tp) if facts.recurrent else None
    if page is None or not facts.kv_heads or len(facts.head_sizes) != 1:
        return None
    heads = max(1, facts.kv_heads // worker.tp)
    token = 2 * heads * facts.head_sizes[0] * 2
    return -(-page // (KERNEL_BLOCK * token)) * KERNEL_BLOCK
