"""Samples the requests of a workload; equal workloads and seeds give equal requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import ceil, log
from random import Random

from penstock.workload.model import Arrival, Bursts, Lengths, Ramp, Workload
from penstock.workload.request import BLOCK_TOKENS, Request


@lru_cache(maxsize=8)  # `plan` samples the same requests for each of many graphs
def sample(workload: Workload, seed: int) -> tuple[Request, ...]:
    """The requests of a workload without a trace, in order of arrival.

    With concurrency all requests arrive at once; the replay sends as many at a time as configured.
    """
    assert workload.arrival is not None, "a trace is read, not sampled"
    sampler = _Sampler(workload, seed)
    requests: list[Request] = []
    turns = workload.conversation.turns if workload.conversation else 1
    limit = workload.fixed_requests
    starts = _first_turns(workload, Random(f"first turns {seed}"))
    for number, at_ms in enumerate(_arrivals(workload.arrival, Random(f"arrivals {seed}"))):
        start = next(starts, 0)
        left = turns - start if limit is None else min(turns - start, limit - len(requests))
        if left <= 0:
            break
        # The turns before the first one are only part of its input.
        begun = list(sampler.conversation(number, at_ms, start + left))[start:]
        requests += [replace(begun[0], at_ms=at_ms, think_ms=0.0), *begun[1:]]
    return tuple(requests)


def _first_turns(workload: Workload, random: Random) -> Iterator[int]:
    """Of the first conversation of each client in a closed loop, as if it had run for long."""
    if workload.conversation is not None and workload.conversation.start == "random":
        yield from (
            random.randrange(workload.conversation.turns) for _ in range(workload.concurrency)
        )


class _Sampler:
    """Samples lengths and prompts, each from its own random stream, so that a change of one leaves
    the others as they are."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._input = Random(f"input {seed}")
        self._output = Random(f"output {seed}")
        self._prompt = Random(f"system prompts {seed}")
        shared = workload.system_prompts
        self._shared_blocks = shared.tokens // BLOCK_TOKENS if shared else 0
        self._next = itertools.count(self._shared_blocks * (shared.count if shared else 0) + 1)

    def conversation(self, number: int, at_ms: float, turns: int) -> Iterator[Request]:
        """``turns`` requests; the input of each has all inputs and outputs before it."""
        workload = self._workload
        assert workload.input
        assert workload.output
        conversation = workload.conversation
        shared = workload.system_prompts
        blocks = self._system_prompt()
        tokens = shared.tokens if shared and conversation else 0
        least = shared.tokens + 1 if shared and not conversation else 1
        for turn in range(turns):
            tokens += max(least, sample_length(workload.input, self._input))
            blocks += [next(self._next) for _ in range(ceil(tokens / BLOCK_TOKENS) - len(blocks))]
            output = sample_length(workload.output, self._output)
            yield Request(
                at_ms=None if turn else at_ms,
                think_ms=conversation.think * 1000 if conversation and turn else 0.0,
                session=f"{number}" if conversation else "",
                input_tokens=tokens,
                output_tokens=output,
                blocks=tuple(blocks),
            )
            del blocks[tokens // BLOCK_TOKENS :]  # the next tokens change an incomplete block
            tokens += output

    def _system_prompt(self) -> list[int]:
        shared = self._workload.system_prompts
        if shared is None:
            return []
        first = self._prompt.randrange(shared.count) * self._shared_blocks + 1
        return list(range(first, first + self._shared_blocks))


def sample_length(lengths: Lengths, random: Random) -> int:
    """A sample, at least 1 and at most `lengths.max`."""
    if lengths.quantiles is not None:
        return _of_quantiles(lengths.quantiles, random.random())
    sigma = lengths.sigma
    if not sigma:
        return lengths.usual
    middle = log(lengths.usual) - (0.0 if lengths.mean is None else sigma**2 / 2)
    length = random.lognormvariate(middle, sigma)
    return max(1, min(round(length), lengths.max or round(length)))


def _of_quantiles(quantiles: Sequence[tuple[float, int]], share: float) -> int:
    """The length at this share, linear between two quantiles."""
    for (low, shorter), (high, longer) in pairwise(quantiles):
        if share < high:
            return round(shorter + (longer - shorter) * (share - low) / (high - low))
    return quantiles[-1][1]


def _arrivals(arrival: Arrival, random: Random) -> Iterator[float]:
    """Milliseconds from the start."""
    if arrival.concurrency is not None:
        yield from itertools.repeat(0.0)
    elif arrival.constant is not None:
        rate = arrival.constant
        yield from (number * 1000 / rate for number in itertools.count())
    elif arrival.poisson is not None:
        at_s = 0.0
        while True:
            yield at_s * 1000
            at_s += random.expovariate(arrival.poisson)
    elif arrival.ramp is not None:
        yield from _thinned(arrival.ramp, random)
    elif arrival.bursts is not None:
        yield from _thinned(arrival.bursts, random)
    elif (ladder := arrival.ladder) is not None:
        for number, rate in enumerate(ladder.rates):
            at_s = number * ladder.every
            while at_s < number * ladder.every + ladder.seconds:
                yield at_s * 1000
                at_s += random.expovariate(rate)


def _thinned(rates: Ramp | Bursts, random: Random) -> Iterator[float]:
    """Poisson arrivals at a changing rate: arrivals at the highest rate, randomly dropped."""
    most = max(rates.start, rates.end) if isinstance(rates, Ramp) else max(rates.rate, rates.peak)
    at_s = 0.0
    while not isinstance(rates, Ramp) or at_s <= rates.seconds:
        if random.random() * most <= _rate(rates, at_s):
            yield at_s * 1000
        at_s += random.expovariate(most)


def _rate(rates: Ramp | Bursts, at_s: float) -> float:
    if isinstance(rates, Ramp):
        return rates.start + (rates.end - rates.start) * at_s / rates.seconds
    return rates.peak if at_s % rates.every < rates.seconds else rates.rate
