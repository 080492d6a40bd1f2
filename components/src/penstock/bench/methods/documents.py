"""The JSON documents of `penstock bench public`, which are part of the schema of `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal

from penstock.bench import aiperf
from penstock.bench.aiperf import Endpoint
from penstock.bench.methods.agentperf import VERSION as AGENTPERF
from penstock.bench.methods.agentperf import AgentPerf
from penstock.bench.methods.artificial_analysis import Part, PartResult, Speeds
from penstock.bench.methods.frontend_counters import fastest, quantile
from penstock.bench.methods.openrouter import Observation
from penstock.bench.methods.report import (
    DEFINITIONS,
    MS,
    SHARES,
    mean_speed,
    mean_throughput,
    openrouter_remarks,
    part_remarks,
    system_load_remarks,
    windows_of,
)
from penstock.bench.methods.system_load import Phase, SystemLoad
from penstock.reports.json_document import Document, VersionedDocument


class SpeedDocument(VersionedDocument):
    """Speeds by two definitions."""

    definitions: Mapping[str, str]
    """Definitions of the two speeds."""
    interrupted: str | None
    """What ended the run early; null if it is complete."""
    remarks: Sequence[str]
    """What differs from the published method, and what limits the figures."""


class PromptsDocument(Speeds, SpeedDocument):
    """Prompts of one length, by Artificial Analysis' method."""

    kind: Literal["artificial-analysis-prompts"]
    """Form of the document."""
    method: Literal["artificial-analysis"]
    """Method of the measurement."""
    client: str
    """Load generator and its version."""
    endpoint: Endpoint
    """Target of the run."""
    part: Part
    """Requests that were sent."""
    requests: int
    """Number of requests."""
    unsent: int
    """Number of requests that were not sent, or have no record."""
    tokens_per_chunk: float | None
    """Output tokens per chunk of the streams; null if no request was served."""
    context: int | None
    """Context length in tokens that the endpoint reports; null if it reports none."""
    distortion: str | None
    """Why this machine may have distorted the latencies; null if it has not."""


class SystemLoadDocument(SpeedDocument):
    """Artificial Analysis' System Load Test."""

    kind: Literal["artificial-analysis-system-load"]
    """Form of the document."""
    method: Literal["artificial-analysis"]
    """Method of the measurement."""
    part: Literal["system-load"]
    """Test of the method."""
    client: str
    """Load generator and its version."""
    endpoint: Endpoint
    """Target of the run."""
    phase_s: float
    """Requested length of a phase, in seconds."""
    phases: Sequence[Phase]
    """Measured phases, lowest concurrency first."""
    reached_ceiling: bool
    """Whether the throughput stopped rising."""


class AgentPerfDocument(VersionedDocument):
    """A run of agentperf-local."""

    kind: Literal["artificial-analysis-agentperf"]
    """Form of the document."""
    method: Literal["artificial-analysis"]
    """Method of the measurement."""
    part: Literal["agentperf"]
    """Test of the method."""
    url: str
    """URL of the endpoint, without `/v1`."""
    model: str
    """Model that was requested."""
    client: str
    """The tool and its version."""
    replay: str
    """Requests that the tool replayed."""
    context: Mapping[str, Any]
    """The tool's own statement about the context length."""
    has_full_context: bool
    """Whether the tool states that the context is sufficient for the replay."""
    summary: Mapping[str, Any]
    """The tool's own summary."""
    remarks: Sequence[str]
    """What the tool printed."""


class TtftEstimate(Document):
    """A percentile of a histogram."""

    value: float | None
    """Interpolated TTFT in ms; null in the last bucket, which has no upper bound."""
    bucket: tuple[float, float | None]
    """Bounds of the bucket that contains it, in ms; null as upper bound is infinite."""


class ThroughputBounds(Document):
    """What a percentile is known to be between."""

    low: float
    """Lower bound in output tokens/s."""
    high: float | None
    """Upper bound in output tokens/s; null if there is none."""


class OutcomeCounts(Document):
    """Requests that ended during the run."""

    successful: float
    """Number of successful requests."""
    failed: float
    """Number of requests that failed because of the endpoint."""
    client_errors: float
    """Number of requests that failed because of the client."""


class OpenRouterDocument(SpeedDocument):
    """OpenRouter's figures, from the metrics of frontends."""

    kind: Literal["openrouter"]
    """Form of the document."""
    method: Literal["openrouter"]
    """Method of the measurement."""
    model: str
    """Model whose requests are counted."""
    urls: Sequence[str]
    """URLs of the frontends, without `/metrics`."""
    seconds: float
    """Length of the observation in seconds."""
    requests: OutcomeCounts
    """Requests of all clients."""
    ttft_ms: Mapping[str, TtftEstimate | None]
    """Time to first token by percentile; null without requests."""
    throughput: Mapping[str, ThroughputBounds | None]
    """Output tokens / complete duration by percentile; null without requests."""
    mean_throughput: float | None
    """Output tokens of all requests / their durations, in tokens/s; null without requests."""
    mean_output_speed: float | None
    """Mean output tokens/s after the first token; null without such tokens."""
    uptime: Mapping[str, float | None]
    """Share of successful requests by window; null if it was not observed or had no request."""


MethodDocument = PromptsDocument | SystemLoadDocument | AgentPerfDocument | OpenRouterDocument


def prompts_document(result: PartResult) -> PromptsDocument:
    remarks = list(part_remarks(result))
    return PromptsDocument.of(
        result,
        client=aiperf.VERSION,
        definitions=DEFINITIONS,
        distortion=result.distorted_by,
        remarks=remarks,
    )


def system_load_document(result: SystemLoad) -> SystemLoadDocument:
    remarks = list(system_load_remarks(result))
    return SystemLoadDocument.of(
        result, client=aiperf.VERSION, definitions=DEFINITIONS, remarks=remarks
    )


def agentperf_document(result: AgentPerf) -> AgentPerfDocument:
    return AgentPerfDocument.of(result, client=AGENTPERF, context=result.result["context"])


def _finite(number: float) -> float | None:
    return None if number == inf else number


def openrouter_document(observation: Observation) -> OpenRouterDocument:
    total = observation.total
    ttft = {name: quantile(total.ttft, share) for name, share in SHARES.items()}
    speeds = {
        name: fastest(observation.known, observation.unknown, s) for name, s in SHARES.items()
    }
    return OpenRouterDocument.of(
        observation,
        requests=OutcomeCounts(
            successful=total.ok, failed=total.errors, client_errors=total.client_errors
        ),
        ttft_ms={
            name: TtftEstimate(
                value=estimate.value and estimate.value * MS,
                bucket=(estimate.low * MS, _finite(estimate.high * MS)),
            )
            if estimate
            else None
            for name, estimate in ttft.items()
        },
        throughput={
            name: ThroughputBounds(low=speed.low, high=_finite(speed.high)) if speed else None
            for name, speed in speeds.items()
        },
        mean_throughput=mean_throughput(total),
        mean_output_speed=mean_speed(total),
        uptime={
            name: window.uptime if window else None
            for name, window in windows_of(observation).items()
        },
        definitions=DEFINITIONS,
        remarks=list(openrouter_remarks(observation)),
    )
