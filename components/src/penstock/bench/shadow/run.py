"""Sends each request to both endpoints, one after the other, and some again to the first.

The order of A and B is random for each request, so that neither is always the later one. A gets a
repeat only `LAG` requests later: the prompt is then less likely to be in its prefix cache, as it is
not in B's. With a cached prompt, sums have another order, which can change the output.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace

from penstock.bench.run import INTERRUPTED
from penstock.bench.shadow.client import Client, OutageError, ShadowEndpoint, both_connected
from penstock.bench.shadow.requests import ShadowRequest, sent_body
from penstock.bench.shadow.response import ShadowResponse

LAG = 32  # requests between a request to A and its repeat
Endpoints = tuple[ShadowEndpoint, ShadowEndpoint]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One request and its responses."""

    request: ShadowRequest
    first: ShadowResponse
    """Of A."""
    second: ShadowResponse
    """Of B."""
    repeat: ShadowResponse | None = None
    """Of A to the same request again; None if it was not repeated."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How requests are sent. ``seed``: of everything that is chosen at random."""

    endpoints: Endpoints
    repeats: int
    """Number of requests that A gets twice."""
    as_sent: bool
    concurrency: int
    timeout_s: float
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ShadowRun(Comparison):
    """A comparison with the requests of a file."""

    requests: Sequence[ShadowRequest]

    def repeated(self) -> frozenset[str]:
        """IDs of the requests that A gets twice: a random sample, so that it represents all."""
        ids = [request.id for request in self.requests]
        return frozenset(random.Random(self.seed).sample(ids, min(self.repeats, len(ids))))


@dataclass(frozen=True, kw_only=True)
class Sent:
    pairs: Sequence[Pair]
    """In the order of the requests."""
    interrupted: str
    """What ended the run early; empty if nothing did."""


def send(run: ShadowRun, known: Sequence[Pair], keep: Callable[[Pair], None]) -> Sent:
    """Send what is not in ``known``. ``keep`` gets each new pair at once, and again with a repeat.

    Ctrl-C and an endpoint that no longer responds end the run; the result has the pairs until then.
    """
    pairs = {pair.request.id: pair for pair in known}
    interrupted = ""
    try:
        asyncio.run(_send(run, pairs, keep))
    except KeyboardInterrupt:
        interrupted = INTERRUPTED
    except OutageError as outage:
        interrupted = str(outage)
    ordered = [pairs[request.id] for request in run.requests if request.id in pairs]
    return Sent(pairs=ordered, interrupted=interrupted)


def steps(run: ShadowRun) -> Iterator[tuple[ShadowRequest, bool]]:
    """The requests in the order in which they are sent, and whether it is the repeat for A."""
    repeated, lag = run.repeated(), max(LAG, 2 * run.concurrency)
    last = len(run.requests) - 1
    for number in range(len(run.requests) + lag):
        if number <= last:
            yield run.requests[number], False
        if number >= lag and (earlier := run.requests[number - lag]).id in repeated:
            yield earlier, True


async def _send(
    run: ShadowRun, pairs: MutableMapping[str, Pair], keep: Callable[[Pair], None]
) -> None:
    async with both_connected(run.endpoints, run.timeout_s) as (first, second):
        has_pair = {each.id: asyncio.Event() for each in run.requests}

        def store(pair: Pair) -> None:
            pairs[pair.request.id] = pair
            keep(pair)

        async def step(request: ShadowRequest, is_repeat: bool) -> None:
            if is_repeat:  # a slow request can still be running, on another worker
                await has_pair[request.id].wait()
                pair = pairs[request.id]
                if pair.repeat is None:
                    store(replace(pair, repeat=await _sent(run, request, first)))
                return
            if request.id not in pairs:
                store(await _pair(run, request, (first, second)))
            has_pair[request.id].set()

        async def work(jobs: Iterator[tuple[ShadowRequest, bool]]) -> None:
            for request, is_repeat in jobs:
                await step(request, is_repeat)

        waiting = steps(run)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(run.concurrency, len(run.requests))):
                    tasks.create_task(work(waiting))
        except* OutageError as outages:
            raise _first(outages) from None


def _first(outages: BaseExceptionGroup[OutageError]) -> OutageError:
    first = outages.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _sent(run: ShadowRun, request: ShadowRequest, client: Client) -> ShadowResponse:
    body = sent_body(request, model=client.endpoint.model, as_sent=run.as_sent)
    return await client.send(request.path, body)


async def _pair(run: ShadowRun, request: ShadowRequest, clients: tuple[Client, Client]) -> Pair:
    responses: dict[str, ShadowResponse] = {}
    order = list(clients)
    random.Random(f"{run.seed} {request.id}").shuffle(order)
    for client in order:
        responses[client.endpoint.name] = await _sent(run, request, client)
    first, second = (responses[client.endpoint.name] for client in clients)
    return Pair(request=request, first=first, second=second)
