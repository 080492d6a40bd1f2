"""Compares responses that clients get from A with those of B to copies of the requests.

`proxy.py` calls `LiveComparison` after each response of A. Workers send the copies, at most
`concurrency` at the same time. What waits is bounded: further copies are skipped and counted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from penstock.bench.shadow.client import Client, OutageError
from penstock.bench.shadow.requests import (
    CHAT,
    COMPLETIONS,
    ShadowRequest,
    parsed,
    request_of_client,
    sent_body,
)
from penstock.bench.shadow.response import Recording, ShadowResponse
from penstock.bench.shadow.run import LAG, Comparison, Pair
from penstock.errors import InputError

WAITING = 64  # most copies that wait for a worker
PAUSE_S = 5.0  # without copies, after B was unreachable
MOST_KEPT = 2**28  # bytes of responses, about; then no further requests are copied
PAIR_BYTES = 2**12  # of a pair without its texts, about


@dataclass(frozen=True, kw_only=True)
class LiveRun(Comparison):
    """A comparison with the requests of clients."""

    share: float
    """Of the requests that are copied to B."""
    count: int | None
    """Number of compared requests after which it ends; None for no such limit."""


@dataclass(kw_only=True)
class LiveCounts:
    """Numbers of requests of clients."""

    forwarded: int = 0
    """Requests that were forwarded to A, of any path."""
    selected: int = 0
    """Requests for inference of which B should get a copy."""
    skipped: int = 0
    """Selected requests that B did not get, because too many waited, they were too large, or B was
    unreachable."""
    disconnected: int = 0
    """Selected requests that the client ended."""
    unreadable: int = 0
    """Selected requests whose body or response cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request, and what the client got for it."""

    path: str
    body: bytes
    authorization: str
    recording: Recording

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return len(self.body) + self.recording.size


@dataclass(frozen=True, kw_only=True)
class _Repeat:
    request: ShadowRequest
    authorization: str
    due: int
    """Number of compared requests from which on it is sent."""


@dataclass(kw_only=True)
class LiveComparison:
    """``keep`` gets each new or changed pair at once; ``say`` a line for the user."""

    run: LiveRun
    keep: Callable[[Pair], None]
    say: Callable[[str], None]
    pairs: dict[str, Pair] = field(default_factory=dict)
    counts: LiveCounts = field(default_factory=LiveCounts)
    is_open: bool = True
    """Whether requests are still copied."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.run.seed)
        self._queue: asyncio.Queue[Exchange | _Repeat] = asyncio.Queue(WAITING)
        self._enough = asyncio.Event()
        self._next = max((int(name) for name in self.pairs), default=0) + 1
        self._repeated = [name for name, pair in self.pairs.items() if pair.repeat is not None]
        self._due: dict[str, _Repeat] = {}
        self._down_until = 0.0
        self._kept = sum(map(_size, self.pairs.values()))
        self._waiting_bytes = 0
        self._is_finished = False
        self._check_enough()

    def selects(self, method: str, path: str) -> bool:
        """Whether B gets a copy of this request."""
        is_inference = method == "POST" and path in (CHAT, COMPLETIONS)
        if not (self.is_open and is_inference) or self._random.random() >= self.run.share:
            return False
        self.counts.selected += 1
        return True

    def add(self, exchange: Exchange) -> None:
        """After the client got its response. Returns at once."""
        if self._is_finished:
            self.uncount()
            return
        if self._queue.full() or self._waiting_bytes + exchange.size > MOST_KEPT:
            self.counts.skipped += 1
            return
        self._queue.put_nowait(exchange)
        self._waiting_bytes += exchange.size

    def uncount(self) -> None:
        """A selected request to which B gets no copy, because the comparison has ended."""
        self.counts.selected -= 1

    async def until_enough(self) -> None:
        await self._enough.wait()

    async def finish(self) -> None:
        """Send what waits, and all repeats."""
        self.is_open = False
        await self._queue.join()
        while self._due:  # workers can remove or add repeats meanwhile
            await self._queue.put(self._due.pop(next(iter(self._due))))
            if not self._due:
                await self._queue.join()
        self._is_finished = True

    async def work(self, first: Client, second: Client) -> None:
        """One worker; until it is cancelled."""
        while True:
            job = await self._queue.get()
            try:
                if isinstance(job, _Repeat):
                    await self._repeat(job, first)
                else:
                    self._waiting_bytes -= job.size
                    await self._copy(job, second)
            finally:
                self._queue.task_done()

    async def _copy(self, exchange: Exchange, client: Client) -> None:
        if self._enough.is_set():
            self.uncount()
            return
        if time.monotonic() < self._down_until:
            self.counts.skipped += 1
            return
        request = self._request_of(exchange)
        if request is None:
            self.counts.unreadable += 1
            return
        first = exchange.recording.response()
        named = request.body.get("model")
        listed = self.run.endpoints[0].listed
        # B must be able to reject a name, too.
        is_unknown = first.is_rejected and named is not None and named not in listed
        model = None if is_unknown else client.endpoint.model
        body = sent_body(request, model=model, as_sent=True)
        try:
            second = await client.send(request.path, body)
        except OutageError as outage:
            if time.monotonic() > self._down_until:  # once, not for each copy that was being sent
                self.say(f"{outage}; requests still go to A, copies to B again in {PAUSE_S:g} s")
                self._down_until = time.monotonic() + PAUSE_S
            second = ShadowResponse(error=f"unreachable: {outage.reason}", is_unreachable=True)
        if self._enough.is_set():
            self.uncount()
            return
        pair = Pair(request=request.without_text(), first=first, second=second)
        self._set(pair)
        self._kept += _size(pair)
        self._select_repeat(request, exchange.authorization)
        self._send_due()
        self._check_enough()

    def _request_of(self, exchange: Exchange) -> ShadowRequest | None:
        """None if it cannot be compared."""
        if not exchange.recording.is_readable:
            return None
        try:
            request = request_of_client(parsed(exchange.body), str(self._next))
        except InputError:
            return None
        if request.path != exchange.path:
            return None
        self._next += 1
        return request

    def _set(self, pair: Pair) -> None:
        self.pairs[pair.request.id] = pair
        self.keep(pair)

    def _select_repeat(self, request: ShadowRequest, authorization: str) -> None:
        """Keep a random sample of all requests until now, whose number is not known in advance
        (reservoir sampling)."""
        if len(self._repeated) < self.run.repeats:
            self._repeated.append(request.id)
        else:
            place = self._random.randrange(len(self.pairs))
            if place >= self.run.repeats:
                return
            replaced, self._repeated[place] = self._repeated[place], request.id
            self._due.pop(replaced, None)
            if self.pairs[replaced].repeat is not None:
                self._set(replace(self.pairs[replaced], repeat=None))
        due = len(self.pairs) + max(LAG, 2 * self.run.concurrency)
        self._due[request.id] = _Repeat(request=request, authorization=authorization, due=due)

    def _send_due(self) -> None:
        for name, repeat in list(self._due.items()):
            if repeat.due > len(self.pairs) or self._queue.full():
                return
            self._queue.put_nowait(self._due.pop(name))

    async def _repeat(self, repeat: _Repeat, client: Client) -> None:
        """To A again. Without a response there is no repeat, as A may have ended."""
        request = repeat.request
        body = sent_body(request, model=None, as_sent=True)
        authorization = repeat.authorization.encode(errors="surrogateescape")
        headers = {b"Authorization": authorization} if authorization else {}
        try:
            response = await client.send(request.path, body, headers)
        except OutageError:
            return
        if request.id in self._repeated:
            before = self.pairs[request.id]
            pair = replace(before, repeat=response)
            self._kept += _size(pair) - _size(before)
            self._set(pair)

    def _check_enough(self) -> None:
        if self.run.count is not None and len(self.pairs) >= self.run.count:
            self.is_open = False
            self._enough.set()
        if self.is_open and self._kept > MOST_KEPT:
            self.is_open = False
            kept = f"the responses to {len(self.pairs)} requests fill {MOST_KEPT >> 20} MiB"
            self.say(f"{kept}; requests still go to A, but no more are copied; press Ctrl-C to end")


def _size(pair: Pair) -> int:
    """Bytes in memory, about."""
    texts = sum(
        len(each.text) + len(each.reasoning) + sum(len(call.arguments) for call in each.tool_calls)
        for each in (pair.first, pair.second, pair.repeat)
        if each is not None
    )
    return PAIR_BYTES + texts
