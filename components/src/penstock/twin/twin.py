"""`penstock up --timing model`: configure live mockers as the replay's engines, and compare both.

`cli.up` creates one `Twin` per run. Prompts are token ids, so that no tokenizer changes their
lengths and shared prefixes.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import httpx

from penstock.environments.paths import STAMP
from penstock.errors import MissingToolError, SimulationError
from penstock.local.predicted_timing import PredictedTiming
from penstock.manifests.deployment import WORKERS, Deployment
from penstock.manifests.source import Source
from penstock.serving.understand import Hints
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.accuracy import evidence
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import (
    Job,
    Replays,
    Result,
    as_trace,
    environment_cache,
    require_environment,
)
from penstock.simulate.replay_child import spread_experts
from penstock.simulate.replayable import replayable
from penstock.simulate.report import WHOLE_EXPERTS
from penstock.simulate.window import ServedRequest, percentile
from penstock.text.numbers import significant
from penstock.verify.preflight import KEY
from penstock.verify.target import LOOPBACK
from penstock.workload import Request, Workload, sample
from penstock.workload.model import Arrival, Lengths
from penstock.workload.request import prompt, with_blocks

REQUESTS, RATE = 24, 3.0  # 8 s, about 200 tokens/s; two cores stream several times as many
INPUT, OUTPUT = 4000, 64
SEED = 1
TOLERANCE = 0.15
TIMEOUT_S = 300.0  # of a request
Engines = dict[str, dict[str, Any]]
WARM_UP = 2  # requests before the measured ones: a mocker's first step loads its step times


@dataclass(frozen=True, kw_only=True)
class LatencyPercentiles:
    """Latencies in milliseconds of simulated time."""

    ttft_p50: float
    ttft_p90: float
    itl_p50: float
    itl_p90: float


def latency_percentiles(requests: Sequence[ServedRequest]) -> LatencyPercentiles:
    ttft = [request.ttft_ms for request in requests]
    itl = [request.itl_ms for request in requests if request.itl_ms is not None]
    return LatencyPercentiles(
        ttft_p50=percentile(ttft, 0.5),
        ttft_p90=percentile(ttft, 0.9),
        itl_p50=percentile(itl, 0.5),
        itl_p90=percentile(itl, 0.9),
    )


def comparison_requests(context: int, speed: float) -> tuple[Request, ...]:
    """The same requests for every graph that accepts prompts of 4,000 tokens.

    A ``speed`` above 1 does not raise the requests per second on this machine.
    """
    prompt_tokens = min(INPUT, context // 4)
    workload = Workload(
        requests=REQUESTS,
        input=Lengths(mean=prompt_tokens, cv=0.5, max=2 * prompt_tokens),
        output=Lengths(mean=min(OUTPUT, max(1, context // 8))),
        arrival=Arrival(poisson=RATE / max(1.0, speed)),
    )
    return sample(workload, SEED)


def comparison_line(
    live: Sequence[ServedRequest], simulated: Sequence[ServedRequest], speed: float
) -> str:
    """`twin: 24 requests, live / simulated: TTFT p50 22.1 / 17.5 ms, …`."""
    measured, replayed = latency_percentiles(live), latency_percentiles(simulated)
    pairs = {
        "TTFT": (measured.ttft_p50, replayed.ttft_p50),
        "ITL": (measured.itl_p50, replayed.itl_p50),
    }
    latencies = ", ".join(
        f"{name} p50 {significant(a)} / {significant(b)} ms" for name, (a, b) in pairs.items()
    )
    clock = "" if speed == 1 else f" in simulated time at {speed:g} × speed"
    note = "the difference is the overhead of the frontend and of this machine"
    if any(a > b * (1 + TOLERANCE) for a, b in pairs.values()):
        note += f"; --speed {speed / 2:g} halves its weight"
    return f"twin: {len(live)} requests, live / simulated{clock}: {latencies} ({note})"


def replayed_engines(replayable: Replayable, *, whole_experts: bool) -> Engines:
    """The engine of each component. ``whole_experts``: the replay had no times for sharded experts
    and used those of whole ones."""
    engines = {name: pool.engine for pool in replayable.pools for name in pool.names}
    changed: Engines = copy.deepcopy({name: dict(engine) for name, engine in engines.items()})
    if whole_experts:
        spread_experts(changed)
    return changed


def live_engine(engine: Mapping[str, Any], context: int, speed: float) -> dict[str, Any]:
    """The replayed engine with the settings that only a server needs: the context length, the index
    that a router which starts late requests, and chunked prefill, without which a prompt that does
    not fit into a step would wait forever."""
    rank = {**engine["engine"], "max_model_len": context, "speedup_ratio": speed}
    if bandwidth := rank.get("kv_transfer_bandwidth"):
        # Measured: the ratio scales an engine's steps, but a KV transfer uses wall-clock time.
        rank["kv_transfer_bandwidth"] = bandwidth * speed
    if must_chunk(engine, context):
        rank["enable_chunked_prefill"] = True
    return {**engine, "engine": rank, "dynamo": {"enable_local_indexer": True}}


def must_chunk(engine: Mapping[str, Any], context: int) -> bool:
    rank = engine["engine"]
    return not rank["enable_chunked_prefill"] and rank["max_num_batched_tokens"] < context


def require_all(deployment: Deployment, engines: Engines) -> None:
    """SimulationError for a pool without replicas, for which the replay has no engine."""
    for component in deployment.components:
        if component.role in WORKERS and component.name not in engines:
            message = f"{component.name} has no replica, so its timing cannot be predicted"
            fix = "Give it 1 replica, or omit --timing model."
            raise SimulationError(message, place=component.name, fix=fix)


def notes(
    replayable: Replayable, engines: Engines, speed: float, *, whole_experts: bool
) -> Iterator[str]:
    """The notes of `up --timing model`."""
    yield f"step times are predicted, not measured; {evidence(replayable)}"
    if speed != 1:
        seconds = significant(1 / speed)
        yield f"simulation speed {speed:g}: {seconds} s of real time is 1 s of simulated time"
    if whole_experts:
        yield f"assumed: {WHOLE_EXPERTS}"
    for what in replayable.assumed:
        yield f"assumed: {what}"
    for what in replayable.not_simulated:
        # The live frontend is the graph's.
        only_in_replay = what in replayable.router.not_simulated
        yield f"{'not in the compared replay' if only_in_replay else 'not simulated'}: {what}"
    for name, engine in engines.items():
        if must_chunk(engine, replayable.context):
            yield f"{name}: long prompts are chunked although chunked prefill is off"


class Twin:
    """``speed``: simulation speed; 0.5 takes twice as long as the real hardware."""

    def __init__(self, speed: float, hints: Hints, acceptance: Acceptance | None = None) -> None:
        self._python = _require_mocker(require_environment())
        self._speed, self._hints, self._acceptance = speed, hints, acceptance
        self._engines: Engines = {}
        self._requests: tuple[Request, ...] = ()
        self._answer: Result = {}

    def timed(self, source: Source) -> PredictedTiming:
        """The timing of a graph. SimulationError when it cannot be replayed, or when there are no
        measured kernels for it."""
        deployment = replayable(source, self._hints, self._acceptance)
        requested = replayed_engines(deployment, whole_experts=False)
        require_all(source.deployment, requested)
        if requested != self._engines:  # a change of replicas needs no new replay
            self._requests = comparison_requests(deployment.context, self._speed)
            self._answer = self._replay(deployment, self._requests)
            self._engines = requested
        whole_experts = bool(self._answer.get("whole_experts"))
        engines = replayed_engines(deployment, whole_experts=whole_experts)
        return PredictedTiming(
            python=str(self._python),
            engines={
                n: live_engine(e, deployment.context, self._speed) for n, e in engines.items()
            },
            notes=tuple(notes(deployment, engines, self._speed, whole_experts=whole_experts)),
        )

    def _replay(self, deployment: Replayable, requests: Sequence[Request]) -> Result:
        trace = as_trace(requests)
        job = Job(replayable=deployment, trace=trace, concurrency=None, sample_ms=1000.0)
        with Replays(environment_cache(self._python), processes=1) as replays:
            return replays.run([job])[0]

    async def compare(self, url: str, model: str, say: Callable[[str], None]) -> None:
        """Send the replayed requests to the endpoint and print both latencies, or why it failed."""
        live = LiveClient(url=url, model=model, speed=self._speed)
        requests, answer = self._requests, self._answer  # an edit may replace them meanwhile
        try:
            await live.serve(requests[:WARM_UP], salt="warm-up")
            measured = await live.serve(requests)
        except LiveError as error:
            say(f"twin: comparison with the replay failed: {error}")
            return
        say(comparison_line(measured, served_requests(answer), self._speed))


def _require_mocker(python: Path) -> Path:
    """MissingToolError for an older environment, which lacks what Dynamo's mocker imports."""
    if "uvloop" not in (python.parents[1] / STAMP).read_text():
        message = "the environment sim is outdated: it lacks packages that the mocker imports"
        fix = "Run `penstock tools env install sim`."
        raise MissingToolError(message, fix=fix)
    return python


class LiveError(Exception):
    """A response that does not match its request."""


class RejectedError(LiveError):
    """A response with another status than 200."""


@dataclass(frozen=True, kw_only=True)
class LiveClient:
    """A client of one model at an endpoint."""

    url: str
    """Base URL, with `/v1`."""
    model: str
    speed: float = 1.0
    """Simulated seconds per real second."""
    itl_from: int = 0
    """Token from which the ITL is measured, if each has a chunk: the first ones can come late and
    together."""

    async def serve(
        self,
        requests: Sequence[Request],
        salt: str = "",
        *,
        concurrency: int | None = None,
        limit_s: float = inf,
    ) -> list[ServedRequest]:
        """Send the requests, which all have an arrival time; the results are in simulated time.

        ``salt`` changes the prompts, so that no cache has them. ``concurrency``: requests at the
        same time; none is sent after ``limit_s`` seconds of real time. None: all at once. LiveError
        when a response does not have exactly the requested tokens.
        """
        clock = asyncio.get_running_loop().time
        # Before the clock starts.
        pairs = [(each, self._body(each, salt)) for each in with_blocks(requests)]
        unsent, served = iter(pairs), list[ServedRequest]()
        async with self._client() as client:
            try:
                await client.get(f"{self.url}/models")  # the first request takes 50 ms longer
                begin = clock()

                async def send() -> None:
                    for request, body in unsent:
                        if clock() - begin > limit_s:
                            break
                        served.append(await self._send(client, begin, request, body))

                async with asyncio.TaskGroup() as group:
                    for _ in range(concurrency or len(pairs)):
                        group.create_task(send())
            except (httpx.HTTPError, ExceptionGroup) as error:
                raise _first(error) from None
        return sorted(served, key=lambda request: request.arrived_ms)

    def _client(self) -> httpx.AsyncClient:
        key = os.environ.get(KEY)
        return httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None),
            timeout=httpx.Timeout(TIMEOUT_S / self.speed),
            trust_env=httpx.URL(self.url).host not in LOOPBACK,  # a proxy must not see loopback
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    def _body(self, request: Request, salt: str) -> bytes:
        body = {
            "model": self.model,
            "prompt": prompt(request, salt),
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(body).encode()

    async def _send(
        self, client: httpx.AsyncClient, begin: float, request: Request, body: bytes
    ) -> ServedRequest:
        clock = asyncio.get_running_loop().time
        assert request.at_ms is not None, "a later turn has no fixed arrival time"
        await asyncio.sleep(begin + request.at_ms / 1000 / self.speed - clock())
        sent, times, usage = clock(), list[float](), dict[str, Any]()
        headers = {"content-type": "application/json"}
        async with client.stream(
            "POST", f"{self.url}/completions", content=body, headers=headers
        ) as response:
            if response.status_code != 200:
                raise RejectedError(
                    f"HTTP {response.status_code}: {(await response.aread())[:200]!r}"
                )
            async for line in response.aiter_lines():
                chunk = _chunk(line)
                if any(_is_token(each, request) for each in chunk.get("choices") or ()):
                    times.append(clock())
                usage = chunk.get("usage") or usage
        _require_tokens(request, usage, times)
        first, last = times[0], times[-1]
        tokens = request.output_tokens
        skipped = self.itl_from if self.itl_from < tokens - 1 and len(times) == tokens else 0
        scale = 1000 * self.speed
        details = usage.get("prompt_tokens_details") or {}
        return ServedRequest(
            arrived_ms=(sent - begin) * scale,
            ended_ms=(last - begin) * scale,
            first_ms=(first - begin) * scale,
            tokens=tokens,
            ttft_ms=(first - sent) * scale,
            itl_ms=(last - times[skipped]) * scale / (tokens - 1 - skipped) if tokens > 1 else None,
            prefill_queue_ms=0.0,
            decode_queue_ms=None,
            input_tokens=request.input_tokens,
            cached_tokens=details.get("cached_tokens") or 0,
        )


def _first(error: Exception) -> LiveError:
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    return first if isinstance(first, LiveError) else LiveError(f"{type(first).__name__}: {first}")


def _chunk(line: str) -> dict[str, Any]:
    """An event of the stream; {} for lines without JSON, such as [DONE]."""
    if line.startswith("event: error"):
        raise LiveError("the stream contains an error event")
    return dict(json.loads(line[5:])) if line.startswith("data: {") else {}


def _is_token(choice: dict[str, Any], request: Request) -> bool:
    """Whether it is not only the end of the output. A part of a character has no text."""
    return bool(choice.get("text")) or not choice.get("finish_reason") or request.output_tokens == 1


def _require_tokens(request: Request, usage: dict[str, Any], times: Sequence[float]) -> None:
    actual = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    expected = (request.input_tokens, request.output_tokens)
    if actual != expected or not times:
        raise LiveError(f"input and output tokens: expected {expected}, got {actual}")
