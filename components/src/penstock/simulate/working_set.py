"""How many tokens the prefix caches must hold for all possible hits, and how many they can hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any

from penstock.manifests.deployment import Role
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import PoolReplay
from penstock.simulate.study import Row
from penstock.workload import BLOCK_TOKENS, Request
from penstock.workload.load import LoadedWorkload


@dataclass(frozen=True, kw_only=True)
class WorkingSet:
    tokens: int
    """The most tokens, at any time, of prompts that were computed and are needed again later."""
    pool: str
    workers: int
    worker_tokens: int
    """KV cache of one worker, which running requests use too."""

    @property
    def fits(self) -> bool:
        """Whether the caches of all workers together hold it."""
        return self.tokens <= self.workers * self.worker_tokens

    def __str__(self) -> str:
        capacity = f"{self.workers} × {self.worker_tokens:,} tokens ({self.pool})"
        end = "" if self.fits else "; the working set does not fit, so prefix-cache hits are lost"
        return f"up to {self.tokens:,} prompt tokens are needed again; KV cache: {capacity}{end}"


def working_set(row: Row, loaded: LoadedWorkload) -> WorkingSet | None:
    """The working set of the pool that computes prompts. ``loaded``: the workload at scale 1. None
    without prefix caching, and if no request shares a prefix."""
    pool = next(
        (p for p in row.replayable.pools if p.role is Role.PREFILL), row.replayable.pools[0]
    )
    if not pool.engine["engine"]["enable_prefix_caching"] or row.replayable.planner is not None:
        return None
    result = row.results[0]
    # A replay may have more requests than the workload, until it is steady.
    replayed = result["summary"]["num_requests"] + row.too_long
    scaled = loaded.scaled(row.scale)
    requests = scaled.with_workload(scaled.workload.with_requests(replayed)).requests(0)
    tokens = needed_again(requests, _median_duration_ms(result))
    if not tokens:
        return None
    names = "+".join(pool.names)
    return WorkingSet(
        tokens=tokens, pool=names, workers=pool.replicas, worker_tokens=_capacity(pool)
    )


def working_sets(rows: Sequence[Row], loaded: LoadedWorkload) -> list[WorkingSet | None]:
    return [working_set(row, loaded) for row in rows]


def _capacity(pool: PoolReplay) -> int:
    rank = pool.engine["engine"]
    return int(rank["num_gpu_blocks"] * rank["block_size"] * pool.engine["dp_size"])


def _median_duration_ms(result: Mapping[str, Any]) -> float:
    served = served_requests(result)
    return median(request.e2e_ms for request in served) if served else 0.0


def needed_again(requests: Sequence[Request], request_ms: float) -> int:
    """Tokens as `WorkingSet.tokens`. A later turn of a conversation arrives ``request_ms`` and its
    pause after the turn before."""
    first, last = dict[int, float](), dict[int, float]()
    for request, at in _arrivals(requests, request_ms):
        for block in request.blocks:
            first[block] = min(first.get(block, at), at)
            last[block] = max(last.get(block, at), at)
    changes: dict[float, int] = {}
    for block, begin in first.items():
        if last[block] > begin:
            changes[begin] = changes.get(begin, 0) + 1
            changes[last[block]] = changes.get(last[block], 0) - 1
    held = accumulate(changes[at] for at in sorted(changes))
    return max(held, default=0) * BLOCK_TOKENS


def possible_hits(requests: Sequence[Request], *, with_outputs: bool = False) -> float:
    """Share of the input tokens that requests before had at the same place, which one cache without
    a limit would find. Of the later half, as caches are empty at first. ``with_outputs``: turns of
    a conversation also find the outputs before them."""
    seen = set[int]()
    before = dict[str, int]()  # tokens of a conversation after its last turn
    hits = tokens = 0
    for number, request in enumerate(requests):
        known = next((i for i, block in enumerate(request.blocks) if block not in seen), None)
        if 2 * number >= len(requests):
            tokens += request.input_tokens
            cached = len(request.blocks) if known is None else known
            cached = max(cached, before.get(request.session, 0) // BLOCK_TOKENS)
            hits += min(request.input_tokens, cached * BLOCK_TOKENS)
        if with_outputs and request.session:
            before[request.session] = request.tokens
        seen.update(request.blocks)
    return hits / tokens if tokens else 0.0


def _arrivals(requests: Sequence[Request], request_ms: float) -> Iterator[tuple[Request, float]]:
    turns: dict[str, float] = {}
    for request in requests:
        at = request.at_ms
        if at is None:
            at = turns[request.session] + request_ms + request.think_ms
        turns[request.session] = at
        yield request, at
