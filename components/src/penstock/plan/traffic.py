"""A workload's requests in the few numbers that an estimate reckons with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from penstock.simulate.metrics import percentile
from penstock.workload import BLOCK_TOKENS, Request

SEEDS = 3  # samples of the traffic on which a decision is based; a first replay has one


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Tokens and requests a second. ``cached``: of a mean prompt, what an endless cache holds from
    requests before; ``fresh``: the rest, ``long_fresh`` what 5 % exceed; ``context``: of a request
    that is half answered; ``users`` take the place of ``rate`` where each waits for an answer."""

    cached: int
    fresh: int
    long_fresh: int
    output: int
    context: int
    rate: float
    users: int | None

    def scaled(self, scale: float) -> Traffic:
        """``scale`` times as fast, with as many times the users."""
        users = None if self.users is None else max(1, round(self.users * scale))
        return replace(self, rate=self.rate * scale, users=users)


def traffic_of(requests: Sequence[Request], users: int | None) -> Traffic:
    """``requests`` in order of arrival, at least one."""
    seen: set[int] = set()
    fresh = [_fresh_tokens(request, seen) for request in requests]
    mean_input = fmean(request.input_tokens for request in requests)
    output = fmean(request.output_tokens for request in requests)
    arrived = [request.at_ms for request in requests if request.at_ms is not None]
    # Later turns have no time of their own: as many requests come as conversations begin, and more.
    seconds = (max(arrived) - min(arrived)) / 1000
    return Traffic(
        cached=max(0, round(mean_input - fmean(fresh))),
        fresh=max(1, round(fmean(fresh))),
        long_fresh=max(1, round(percentile(fresh, 0.95))),
        output=max(1, round(output)),
        context=round(mean_input + output / 2),
        rate=len(requests) / seconds if seconds else 1.0,
        users=users,
    )


def has_shared_prefixes(requests: Sequence[Request]) -> bool:
    """Whether some have a beginning in common."""
    firsts = [request.blocks[0] for request in requests if request.blocks]
    return len(set(firsts)) < len(firsts)


def _fresh_tokens(request: Request, seen: set[int]) -> int:
    known = 0
    for block in request.blocks:
        if block not in seen:
            break
        known += 1
    seen.update(request.blocks)
    return max(1, request.input_tokens - known * BLOCK_TOKENS)
