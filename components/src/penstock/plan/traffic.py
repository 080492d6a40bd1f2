"""A workload's requests, summarized in the numbers that the estimate uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from penstock.simulate.window import percentile
from penstock.workload import BLOCK_TOKENS, Request


@dataclass(frozen=True, kw_only=True)
class Traffic:
    cached: int  # tokens of a mean input that an unlimited prefix cache has from earlier requests
    fresh: int  # the other tokens of a mean input
    long_fresh: int  # 95th percentile of the tokens that are not cached
    output: int  # tokens of a mean output
    context: int  # tokens of a mean request when half of its output is done
    rate: float  # requests/s
    concurrency: int | None  # replaces `rate` for closed-loop clients

    def scaled(self, scale: float) -> Traffic:
        """The traffic with ``scale`` times the rate or the concurrency."""
        concurrency = None
        if self.concurrency is not None:
            concurrency = max(1, round(self.concurrency * scale))
        return replace(self, rate=self.rate * scale, concurrency=concurrency)


def traffic_of(requests: Sequence[Request], concurrency: int | None) -> Traffic:
    """``requests``: at least one, in order of arrival."""
    seen: set[int] = set()
    fresh = [_fresh_tokens(request, seen) for request in requests]
    mean_input = fmean(request.input_tokens for request in requests)
    output = fmean(request.output_tokens for request in requests)
    arrivals = [request.at_ms for request in requests if request.at_ms is not None]
    # Later turns have no arrival. So the rate has all requests in the time in which the
    # conversations start.
    seconds = (max(arrivals) - min(arrivals)) / 1000
    return Traffic(
        cached=max(0, round(mean_input - fmean(fresh))),
        fresh=max(1, round(fmean(fresh))),
        long_fresh=max(1, round(percentile(fresh, 0.95))),
        output=max(1, round(output)),
        context=round(mean_input + output / 2),
        rate=len(requests) / seconds if seconds else 1.0,
        concurrency=concurrency,
    )


def has_shared_prefixes(requests: Sequence[Request]) -> bool:
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
