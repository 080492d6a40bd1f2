"""The stages of a ladder of arrival rates: the part of a replay that belongs to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from penstock.simulate.window import (
    MAX_WARM_UP,
    WARM_UP,
    RateWindow,
    ServedRequest,
    Steadiness,
    median_duration,
    steadiness_of,
)
from penstock.text.numbers import significant
from penstock.workload.model import Workload

REJECTED, FIRST = "rejected", "first_ms"  # in the result of a replay, from the fields of its `Job`


@dataclass(frozen=True, kw_only=True)
class Stage:
    number: int  # 0 for the first
    rate: float  # requests/s, or conversations/s
    begin_ms: float
    arrivals_end_ms: float
    end_ms: float  # of its pause; infinite for the last stage

    def __str__(self) -> str:
        return f"{significant(self.rate)}/s"

    def has(self, at_ms: float) -> bool:
        return self.begin_ms <= at_ms < self.end_ms


def stages_of(workload: Workload) -> list[Stage]:
    """Empty without a ladder."""
    ladder = workload.arrival.ladder if workload.arrival else None
    if ladder is None:
        return []
    last, every_ms = len(ladder.rates) - 1, ladder.every * 1000
    return [
        Stage(
            number=number,
            rate=rate,
            begin_ms=number * every_ms,
            arrivals_end_ms=number * every_ms + ladder.seconds * 1000,
            end_ms=inf if number == last else (number + 1) * every_ms,
        )
        for number, rate in enumerate(ladder.rates)
    ]


def rejected_in(result: Mapping[str, Any], stage: Stage) -> list[bool]:
    """Of each request of the stage that was not replayed: whether its input alone is too long."""
    return [is_input for at_ms, is_input in result[REJECTED] if stage.has(at_ms)]


def rates_in(
    stage: Stage, result: Mapping[str, Any], requests: Sequence[ServedRequest]
) -> RateWindow:
    """Where the throughput of the stage is measured: while its requests arrive, after a warm-up.

    ``requests``: of the complete replay. Those of earlier stages may still run.
    """
    begin, end = (ms - result[FIRST] for ms in (stage.begin_ms, stage.arrivals_end_ms))
    took = median_duration(_arrived_in(stage, result, requests))
    warm_up = min(WARM_UP * took, MAX_WARM_UP * (end - begin))
    return RateWindow(begin=begin + warm_up, end=end, requests=requests)


def overload_in(
    stage: Stage, result: Mapping[str, Any], requests: Sequence[ServedRequest]
) -> Steadiness | None:
    """The steadiness of a stage whose queue grows; None for others, however short they are.
    ``requests``: as in `rates_in`."""
    steadiness = steadiness_of(_arrived_in(stage, result, requests), None)
    is_growing = not steadiness.is_served or steadiness.is_growing
    return steadiness if steadiness.has_rate and is_growing else None


def _arrived_in(
    stage: Stage, result: Mapping[str, Any], requests: Sequence[ServedRequest]
) -> list[ServedRequest]:
    return [request for request in requests if stage.has(result[FIRST] + request.arrived_ms)]


def part_of(result: Mapping[str, Any], stage: Stage) -> Mapping[str, Any]:
    """The result with the requests that arrive in the stage, and the samples from then."""
    first_ms, columns = result[FIRST], result["requests"]  # the replay's time begins there
    arrivals = enumerate(columns["arrival_time_ms"])
    rows = [number for number, ms in arrivals if stage.has(first_ms + ms)]
    part = {name: [column[row] for row in rows] for name, column in columns.items()}
    ends = [ms for ms in part["last_token_ms"] if ms is not None]
    summary = {
        **result["summary"],
        "num_requests": len(rows),
        "completed_requests": len(ends),
        "duration_ms": max(0.0, max(ends, default=0.0) + first_ms - stage.begin_ms),
        "p99_itl_ms": None,  # of all tokens of the replay
    }
    samples = [sample for sample in result["samples"] if stage.has(first_ms + sample["at_ms"])]
    return {**result, "requests": part, "summary": summary, "samples": samples}
