"""Rules about pools of different tensor parallelism under vLLM's NIXL connector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.nixl_pools import nixl_pairs
from penstock.checks.version_range import AGREEMENT, Versions
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# `_validate_remote_agent_handshake` computes all layers with one number of KV heads.
TWO_KINDS = Versions(vllm=">=0.26")
SEVERAL_SIZES = Versions(vllm=">=0.14")
# `assert tp_ratio > 0, "Decode TP cannot be smaller than prefill TP"`, for all models.
ONLY_LARGER = Versions(vllm="<0.14")


def tensor_parallelism(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for (prefill, decode), _, _ in nixl_pairs(deployment):
        if prefill.is_laid_out and decode.is_laid_out and prefill.tp != decode.tp:
            facts = deployment.facts_of(decode)
            yield from _unequal(prefill, decode, facts)


def _unequal(prefill: Worker, decode: Worker, facts: ModelFacts | None) -> Iterator[RuleResult]:
    first, second = prefill.tp, decode.tp
    sizes = f"TP {second} on {decode.name} and TP {first} on {prefill.name}"
    if max(first, second) % min(first, second):
        yield _result(decode, first, f"{sizes}: neither divides the other", versions=AGREEMENT)
        return
    if second < first:
        problem = "vLLM before 0.14 cannot transfer KV to a smaller TP"
        yield _result(decode, first, f"{sizes}: {problem}", versions=ONLY_LARGER)
    if facts is None or facts.is_mla:
        return
    elif facts.is_hybrid:
        yield from _hybrid(decode, first, sizes, facts.kv_heads)
    elif facts.global_kv_heads and max(first, second) > facts.global_kv_heads:
        # A GPU's share of the two kinds of layers then has another ratio in each pool.
        yield _result(
            decode,
            first,
            f"{sizes}: the full-attention layers of {decode.value('model')} have only "
            f"{facts.global_kv_heads} KV heads, the others {facts.kv_heads}",
            versions=TWO_KINDS,
        )
    elif second < first and facts.kv_heads and first >= facts.kv_heads:
        # Up to 0.19, one KV head for each GPU counted as several copies.
        only_old = Versions(vllm=">=0.14,<0.20.1")
        yield _result(
            decode,
            first,
            f"{sizes}: the prefill workers store each of {facts.kv_heads} KV heads "
            f"{first // facts.kv_heads} times"
            if first > facts.kv_heads
            else f"{sizes}: this version cannot split one KV head for each prefill GPU",
            versions=SEVERAL_SIZES if first > facts.kv_heads else only_old,
        )
    elif second < first:
        yield _result(
            decode,
            first,
            f"{sizes}: after a failed handshake the decode engine stops with a KeyError",
            versions=Versions(vllm=">=0.14,<0.20.1"),
            level=Level.WARNING,
        )


def _hybrid(decode: Worker, first: int, sizes: str, kv_heads: int | None) -> Iterator[RuleResult]:
    yield _result(
        decode,
        first,
        f"{sizes}: recurrent layers need the same TP",
        versions=Versions(vllm=">=0.19,<0.20.1"),
    )
    # As long as each GPU has other KV heads, both kinds of layers shrink with the TP.
    if kv_heads and max(first, decode.tp) > kv_heads:
        yield _result(
            decode,
            first,
            f"{sizes}: with {kv_heads} KV heads, the block size that the recurrent layers require "
            "differs between the pools",
            versions=Versions(vllm=">=0.20.1"),
            level=Level.WARNING,
        )


def _result(
    decode: Worker,
    first: int,
    message: str,
    *,
    versions: Versions,
    level: Level | None = None,
) -> RuleResult:
    return RuleResult(
        location=decode.settings.location("tensor_parallel"),
        message=message,
        fix=Fix(
            text=f"Set tensor-parallel-size to {first} on both pools, with as many GPUs.",
        ),
        versions=versions,
        level=level,
    )
