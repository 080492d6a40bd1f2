"""The counters of one Dynamo frontend for one model, read from its metrics, and their changes.

A frontend counts tokens and durations, but not the throughput of each request. If exactly one
request ended between two readings, the changes of the sums are its tokens and its duration. Of
several that ended together, only the sums are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import ceil, inf
from typing import Any

from penstock.metrics import Metrics, parse

PREFIX = "dynamo_frontend_"
REQUESTS = f"{PREFIX}requests_total"
TTFT = f"{PREFIX}time_to_first_token_seconds"
DURATION = f"{PREFIX}request_duration_seconds"
TOKENS = f"{PREFIX}output_sequence_tokens"
ITL = f"{PREFIX}inter_token_latency_seconds"
UPTIME = "dynamo_component_uptime_seconds"  # of each process, with an id of the process
NAMES = (REQUESTS, TTFT, DURATION, TOKENS, ITL, UPTIME)
SUCCESS = "success"
LATE = 5  # readings, after which sums that do not match are given up
# Errors of a request, not of the server: its parameters, its model, or its client that left.
OF_CLIENTS = frozenset({"validation", "not_found", "not_implemented", "cancelled"})

Outcome = tuple[str, str]
"""Labels `status` and `error_type`."""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Sums since some time. Times are seconds."""

    ttft: Mapping[float, float] = field(default_factory=dict)
    """Requests by upper bound of their TTFT, the lower buckets included."""
    outcomes: Mapping[Outcome, float] = field(default_factory=dict)
    durations: float = 0.0
    """Number of requests with a duration."""
    duration_s: float = 0.0
    lengths: float = 0.0
    """Number of requests with a number of output tokens."""
    tokens: float = 0.0
    gaps: float = 0.0
    """Between output tokens."""
    gap_s: float = 0.0

    def __sub__(self, other: Counters) -> Counters:
        return self._combined(other, -1)

    def __add__(self, other: Counters) -> Counters:
        return self._combined(other, 1)

    def _combined(self, other: Counters, sign: int) -> Counters:
        combined: dict[str, Any] = {}
        for counter in fields(self):
            mine, theirs = getattr(self, counter.name), getattr(other, counter.name)
            if isinstance(mine, Mapping):
                keys = [*mine, *(key for key in theirs if key not in mine)]
                combined[counter.name] = {
                    k: mine.get(k, 0.0) + sign * theirs.get(k, 0.0) for k in keys
                }
            else:
                combined[counter.name] = mine + sign * theirs
        return Counters(**combined)

    @property
    def is_below_zero(self) -> bool:
        """Whether this is a difference of counters that were reset in between."""
        plain = (self.durations, self.lengths, self.tokens, self.gaps)
        return any(n < 0 for n in (*plain, *self.ttft.values(), *self.outcomes.values()))

    @property
    def ok(self) -> float:
        return sum(n for (status, _), n in self.outcomes.items() if status == SUCCESS)

    @property
    def errors(self) -> float:
        """Of the server."""
        return sum(n for (_, kind), n in self._failed() if kind not in OF_CLIENTS)

    @property
    def client_errors(self) -> float:
        return sum(n for (_, kind), n in self._failed() if kind in OF_CLIENTS)

    def _failed(self) -> Iterable[tuple[Outcome, float]]:
        return ((labels, count) for labels, count in self.outcomes.items() if labels[0] != SUCCESS)

    @property
    def uptime(self) -> float | None:
        """Share of successful requests; those with an error of the client are not counted."""
        counted = self.ok + self.errors
        return self.ok / counted if counted else None


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """The metrics of one frontend at one time."""

    process: str
    """Its id; empty if the frontend reports none."""
    uptime_s: float | None
    counters: Counters


def is_frontend(text: str) -> bool:
    """Whether a scrape is that of a Dynamo frontend."""
    return f"\n{PREFIX}" in f"\n{text}"


def read_scrape(text: str, model: str) -> Scrape:
    """ValueError if ``text`` is not in Prometheus' text format."""
    # Most of the 100 kB of a scrape are other metrics, and parsing is slow.
    metrics = Metrics(tuple(parse("\n".join(_relevant(text)) + "\n")))
    label = next((name for name in _models(metrics) if name.casefold() == model.casefold()), model)
    uptimes = list(metrics.find(UPTIME))
    is_one = len(uptimes) == 1
    return Scrape(
        process=uptimes[0].labels.get("worker_id", "") if is_one else "",
        uptime_s=uptimes[0].value if is_one else None,
        counters=_counters(metrics, label),
    )


def _relevant(text: str) -> Iterable[str]:
    return (line for line in text.splitlines() if line.startswith(NAMES))


def _models(metrics: Metrics) -> set[str]:
    return {sample.labels["model"] for sample in metrics.samples if "model" in sample.labels}


def _counters(metrics: Metrics, model: str) -> Counters:
    def total(name: str) -> float:
        return metrics.total([name], model=model) or 0.0

    outcomes: dict[Outcome, float] = {}
    for sample in metrics.find(REQUESTS, model=model):
        outcome = sample.labels.get("status", ""), sample.labels.get("error_type", "")
        outcomes[outcome] = outcomes.get(outcome, 0.0) + sample.value
    ttft: dict[float, float] = {}
    for sample in metrics.find(f"{TTFT}_bucket", model=model):
        bound = float(sample.labels.get("le", inf))
        ttft[bound] = ttft.get(bound, 0.0) + sample.value
    return Counters(
        ttft=ttft,
        outcomes=outcomes,
        durations=total(f"{DURATION}_count"),
        duration_s=total(f"{DURATION}_sum"),
        lengths=total(f"{TOKENS}_count"),
        tokens=total(f"{TOKENS}_sum"),
        gaps=total(f"{ITL}_count"),
        gap_s=total(f"{ITL}_sum"),
    )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A percentile, known only to be in a bucket."""

    value: float | None
    """Linear in the bucket, as Prometheus' `histogram_quantile`; None in the last bucket, which
    has no upper bound."""
    low: float
    high: float
    """Bounds of the bucket; infinite for the last one."""


def quantile(buckets: Mapping[float, float], share: float) -> Estimate | None:
    """``buckets``: counts by upper bound, the lower buckets included. None without values."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if not total:
        return None
    rank, low, below = share * total, 0.0, 0.0
    for high in bounds:
        count = buckets[high]
        if count >= rank and count > below:
            inside = (rank - below) / (count - below)
            value = None if high == inf else low + inside * (high - low)
            return Estimate(value=value, low=low, high=high)
        low, below = high, count
    return None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Between which a percentile is, in output tokens/s."""

    low: float
    high: float


@dataclass(kw_only=True)
class RequestSpeeds:
    """Of one frontend process."""

    known: list[float] = field(default_factory=list)
    """Output tokens/s of requests that ended alone."""
    unknown: int = 0
    """Number of the other successful requests."""
    _open: Counters = field(default_factory=Counters)
    _waited: int = 0

    def add(self, change: Counters) -> None:
        """``change``: since the reading before."""
        self._open += change
        waiting = self._open
        if not waiting.durations and not waiting.lengths:
            return
        matches = waiting.durations == waiting.lengths == waiting.ok
        self._waited += 1
        has_failed = bool(waiting.errors or waiting.client_errors)
        if not matches and not has_failed and self._waited < LATE:
            return  # a request was ending at the time of the reading
        if matches and waiting.ok == 1 and waiting.duration_s > 0:
            self.known.append(waiting.tokens / waiting.duration_s)
        else:
            self.unknown += round(waiting.ok)
        self._open, self._waited = Counters(), 0


def fastest(known: Sequence[float], unknown: int, share: float) -> Bounds | None:
    """The throughput that a ``share`` of the requests reaches or exceeds. None without requests.

    The bounds hold whatever the throughput of the ``unknown`` requests is; infinite or 0 if these
    are too many.
    """
    total = len(known) + unknown
    if not total:
        return None
    rank = max(0, ceil(share * total) - 1)
    ordered = sorted(known, reverse=True)
    low = (ordered + [0.0] * unknown)[rank]
    high = ([inf] * unknown + ordered)[rank]
    return Bounds(low=low, high=high)
