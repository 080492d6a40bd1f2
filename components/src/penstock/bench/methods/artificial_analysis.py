"""The performance test of Artificial Analysis: prompts of fixed lengths, alone or 10 at a time.

AIPerf sends the requests, as for any other workload of `penstock bench`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.bench import aiperf
from penstock.bench.aiperf import Endpoint, Traffic
from penstock.bench.measurement import Failures, distortion_of
from penstock.bench.methods.context_adapter import served_context
from penstock.bench.records import Records
from penstock.bench.run import Progress, send
from penstock.bench.trace_file import Key, keyed
from penstock.errors import BenchError
from penstock.reports.json_document import Document
from penstock.simulate.window import ServedRequest, percentile
from penstock.workload.request import Request

SEVERAL_TOKENS = 1.05  # tokens per chunk, from which the first chunk is not one token


@dataclass(frozen=True, kw_only=True)
class Part:
    """One workload of the method."""

    name: str
    """Its name in `--part`."""
    input_tokens: int
    """Of each request."""
    output_tokens: int
    """Of each request."""
    concurrency: int
    """Requests at the same time."""
    requests: int
    """By default: as many as Artificial Analysis sends per day."""

    def __str__(self) -> str:
        load = "one after another" if self.concurrency == 1 else f"{self.concurrency} at a time"
        lengths = f"{self.input_tokens:,} input and {self.output_tokens:,} output tokens"
        return f"{lengths} per request, {load}"


# Input and output tokens, concurrency, requests.
_TABLE = {
    "1k": (1000, 1000, 1, 8),
    "10k": (10_000, 1500, 1, 8),
    "100k": (100_000, 2000, 1, 8),
    "1k-parallel": (1000, 1000, 10, 10),
}
PARTS = {
    name: Part(
        name=name, input_tokens=prompt, output_tokens=output, concurrency=at_once, requests=count
    )
    for name, (prompt, output, at_once, count) in _TABLE.items()
}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of the served requests."""

    median: float
    """Nearest rank."""
    lowest: float
    """Lowest value."""
    highest: float
    """Highest value."""

    @staticmethod
    def of(values: Sequence[float]) -> Spread | None:
        """None without values."""
        if not values:
            return None
        return Spread(median=percentile(values, 0.5), lowest=min(values), highest=max(values))


class Speeds(Document):
    """Of the requests of a part, or of a phase. Times are milliseconds, rates output tokens/s."""

    ttft_ms: Spread | None
    """Time to first token; null if no request was served."""
    e2e_ms: Spread | None
    """End-to-end latency; null if no request was served."""
    output_speed: Spread | None
    """Output tokens/s after the first token, by Artificial Analysis' definition; null if no
    response has several chunks."""
    throughput: Spread | None
    """Output tokens / complete duration, in tokens/s, by OpenRouter's definition; null if no
    request was served."""
    failures: Failures
    """Failed requests."""
    cpu_share: float
    """Share of this machine's processor time while requests were sent."""

    @property
    def served(self) -> int:
        """Number of served requests."""
        return self.failures.sent - self.failures.total

    @property
    def distorted_by(self) -> str:
        """Why this machine may have distorted the latencies; empty if it has not."""
        return distortion_of(0.0, self.ttft_ms.median if self.ttft_ms else None, self.cpu_share)


def speeds_of(records: Records, cpu_share: float) -> dict[str, Any]:
    """The fields of `Speeds`."""
    served = list(records.served.values())
    speeds = [speed for request in served if (speed := output_speed(request)) is not None]
    return {
        "ttft_ms": Spread.of([request.ttft_ms for request in served]),
        "e2e_ms": Spread.of([request.e2e_ms for request in served]),
        "output_speed": Spread.of(speeds),
        # By OpenRouter's definition.
        "throughput": Spread.of([1000 * request.tokens / request.e2e_ms for request in served]),
        "failures": Failures.of(records),
        "cpu_share": cpu_share,
    }


class PartResult(Speeds):
    """One run of a part."""

    endpoint: Endpoint
    part: Part
    requests: int
    unsent: int
    tokens_per_chunk: float | None
    """Of the streams; None if nothing was served."""
    context: int | None
    """Context length in tokens that the endpoint reports."""
    interrupted: str

    @property
    def has_large_chunks(self) -> bool:
        return (self.tokens_per_chunk or 0.0) > SEVERAL_TOKENS


def output_speed(request: ServedRequest) -> float | None:
    """Output tokens/s after the first token. None for a single token, and if all came at once."""
    return 1000 / request.itl_ms if request.itl_ms else None


def fixed_requests(count: int, input_tokens: int, output_tokens: int) -> dict[Key, Request]:
    """That share no prefix."""
    return keyed(
        [
            Request(at_ms=0.0, input_tokens=input_tokens, output_tokens=output_tokens, blocks=())
            for _ in range(count)
        ]
    )


def require_context(endpoint: Endpoint, input_tokens: int, output_tokens: int) -> int | None:
    """The context length that the endpoint reports. BenchError if a request is longer."""
    context = served_context(endpoint.url, endpoint.model)
    needed = input_tokens + output_tokens
    if context is not None and needed > context:
        message = f"a request has {needed:,} tokens, and the context length is {context:,}"
        fix = "Choose a part with shorter requests, or raise `model.context_length` of the graph."
        raise BenchError(message, place=endpoint.url, fix=fix)
    return context


def measure_part(
    endpoint: Endpoint,
    part: Part,
    requests: int,
    folder: Path,
    progress: Progress,
    *,
    timeout_s: float,
) -> PartResult:
    """Send ``requests`` requests, and keep all files in ``folder``. Raises as `bench.run.send`
    does, and BenchError if the context is too short."""
    aiperf.require_environment()
    context = require_context(endpoint, part.input_tokens, part.output_tokens)
    traffic = Traffic(
        endpoint=endpoint,
        requests=fixed_requests(requests, part.input_tokens, part.output_tokens),
        concurrency=part.concurrency,
        folder=folder,
        timeout_s=timeout_s,
    )
    sent = send([traffic], progress)
    (records,) = sent.records
    chunks = len(records.chunk_gaps_ms) + len(records.served)
    tokens = sum(request.tokens for request in records.served.values())
    return PartResult(
        **speeds_of(records, sent.cpu_share),
        endpoint=endpoint,
        part=part,
        requests=requests,
        unsent=records.unsent,
        tokens_per_chunk=tokens / chunks if chunks else None,
        context=context,
        interrupted=sent.interrupted,
    )
