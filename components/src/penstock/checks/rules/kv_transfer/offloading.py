"""Rules about vLLM's connectors that offload KV, and the keys that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.vllm_connectors import (
    SECTION,
    Connector,
    connector_of,
    hma_flag,
)
from penstock.checks.version_range import Versions
from penstock.models import ModelFacts
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

OFFLOADING = "OffloadingConnector"
CPU_SPECS = (None, "CPUOffloadingSpec", "TieringOffloadingSpec")
POLICIES = ("lru", "arc")
SMALLEST_BLOCK = 16  # every block of vLLM's KV cache on a GPU is a multiple of it
PREFIX_CACHING = "enable-prefix-caching"
# Before 0.28 vLLM does not cache prefixes of hybrid models unless it is asked to.
OFF_FOR_HYBRID = Versions(vllm=">=0.19,<0.28")


def offloading_connectors(deployment: ServingDeployment) -> Iterator[tuple[Worker, Connector]]:
    for worker in deployment.workers:
        connector = connector_of(worker)
        for one in connector.walk() if connector is not None else ():
            if one.name == OFFLOADING:
                yield worker, one


def caches_prefixes(worker: Worker) -> bool | None:
    """True or False if a flag says so; None for the default."""
    value = worker.get(PREFIX_CACHING)
    return value if isinstance(value, bool) else None


def no_offloading_size(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, connector in offloading_connectors(deployment):
        if connector.extra.get("spec_name") not in CPU_SPECS or connector.module:
            continue
        yield from _missing(worker, connector, "cpu_bytes_to_use", "num_cpu_blocks", ">=0.14")
        yield from _missing(worker, connector, "num_cpu_blocks", "cpu_bytes_to_use", "<0.14")


def _missing(
    worker: Worker, connector: Connector, key: str, other: str, versions: str
) -> Iterator[RuleResult]:
    if not connector.extra.get(key):
        given = connector.extra.get(other)
        instead = f", but {other}, which this version does not read" if given else ""
        yield RuleResult(
            location=worker.config_location(SECTION),
            message=f"{OFFLOADING} has no {key}{instead}",
            fix=Fix(text=f"Set {key} in kv_connector_extra_config."),
            versions=Versions(vllm=versions),
        )


def invalid_offloading_blocks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, connector in offloading_connectors(deployment):
        facts = deployment.facts_of(worker)
        for problem, fix, versions in _block_problems(worker, connector.extra, facts):
            yield RuleResult(
                location=worker.config_location(SECTION),
                message=f"kv_connector_extra_config: {problem}",
                fix=Fix(text=fix),
                versions=Versions(vllm=versions),
            )


def _block_problems(
    worker: Worker, extra: Mapping[str, object], facts: ModelFacts | None
) -> Iterator[tuple[str, str, str]]:
    """(problem, fix, versions of vLLM)."""
    size, blocks = extra.get("block_size"), extra.get("blocks_per_chunk")
    policy = extra.get("eviction_policy")
    if policy is not None and policy not in POLICIES:
        yield f"eviction_policy is {policy}", "Set eviction_policy to lru or arc.", ">=0.12"
    if blocks is not None and size is not None:
        problem = "block_size and blocks_per_chunk are mutually exclusive"
        yield problem, "Remove block_size.", ">=0.26"
    elif blocks is not None and positive_int(blocks) is None:
        problem = f"blocks_per_chunk is {blocks}, but must be above 0"
        yield problem, "Set blocks_per_chunk to 1 or more.", ">=0.26"
    tokens = positive_int(size)
    if tokens is None or blocks is not None:
        return
    own = worker.count("block_size") or SMALLEST_BLOCK
    if tokens % own:
        problem = f"block_size {tokens} is not a multiple of the GPU's block size {own}"
        yield problem, f"Set block_size to {-(-tokens // own) * own}.", ">=0.11"
    elif facts is not None and _has_several_block_sizes(facts) and hma_flag(worker) is not True:
        problem = (
            f"block_size {tokens} requires one block size for all layers, and "
            f"{worker.value('model')} has several"
        )
        yield problem, "Use blocks_per_chunk instead of block_size.", ">=0.26"


def _has_several_block_sizes(facts: ModelFacts) -> bool:
    """Whether layers of two kinds have pages of different sizes, which vLLM makes equal by
    larger blocks (`unify_kv_cache_spec_page_size`)."""
    return facts.has_windows and len(facts.head_sizes) > 1


def no_prefix_caching(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        connector, facts = connector_of(worker), deployment.facts_of(worker)
        caches = caches_prefixes(worker)
        if connector is None or caches is True:
            continue
        is_hybrid = facts is not None and facts.is_hybrid
        for one in connector.walk():
            simple = one.name == "SimpleCPUOffloadConnector"
            if not (simple and (is_hybrid or caches is False)) and not (
                one.name == OFFLOADING and is_hybrid
            ):
                continue
            model = worker.value("model")
            yield RuleResult(
                location=worker.config_location(PREFIX_CACHING)
                if caches is False
                else worker.config_location(SECTION),
                message=f"{one.name} requires {PREFIX_CACHING}"
                + (f" for the recurrent layers of {model}" if is_hybrid and not simple else "")
                + ("" if caches is False else ", which is off by default for recurrent layers"),
                fix=Fix(text=f"Set {PREFIX_CACHING}.", config={PREFIX_CACHING: True}),
                level=Level.WARNING if simple else None,
                why="vLLM logs a warning and offloads nothing." if simple else "",
                versions=None if caches is False else OFF_FOR_HYBRID,
            )
