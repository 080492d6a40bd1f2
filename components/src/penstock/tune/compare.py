"""Compares two settings by replays of the same traffic. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from penstock.simulate.metrics import steady_requests
from penstock.simulate.study import Row
from penstock.simulate.window import percentile
from penstock.tune.settings import RouterSettings

METRIC = "ttft_p90_ms"
MARGIN = 0.05  # other latencies may be higher by this share: replays of one setting differ by 4 %
SLO_MARGIN = 0.01  # the share of requests within the SLO may be lower by this
NEEDED = 1.03  # lower bound of the ratio of the metric, above which a change is recommended
TIE = 0.01  # of the ratio
QUEUED = 0.05  # share of the TTFT's p90 below which requests do not queue
LIMITED = {"ttft_p99_ms": "TTFT p99", "itl_p90_ms": "ITL p90"}
# 95 % one-sided quantiles of Student's t by degrees of freedom; above ten, that of ten.
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
SMALLEST_MS = 1e-6


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Replays of one part of the traffic with these settings."""

    settings: RouterSettings
    row: Row


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times higher the base's metric is: above 1 is an improvement."""

    mean: float
    low: float | None  # 95 % lower bound over the seeds; None with a single one


def values(row: Row, name: str) -> list[float]:
    """Of a metric for each seed that has it."""
    return [float(v) for one in row.metrics if (v := getattr(one, name)) is not None]


def ratio_of(base: Trial, other: Trial, name: str = METRIC) -> Ratio:
    """The geometric mean over the seeds that both have; 1 for a metric that they do not have."""
    pairs = zip(values(base.row, name), values(other.row, name), strict=False)
    logs = [log(max(a, SMALLEST_MS) / max(b, SMALLEST_MS)) for a, b in pairs]
    mean = fmean(logs or [0.0])
    if len(logs) < 2:
        return Ratio(mean=exp(mean), low=None)
    quantile = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1]
    return Ratio(mean=exp(mean), low=exp(mean - quantile * stdev(logs) / sqrt(len(logs))))


def exceeded(base: Trial, other: Trial) -> list[str]:
    """Margins that the other settings exceed, as clauses."""
    return list(_exceeded(base, other))


def _exceeded(base: Trial, other: Trial) -> Iterator[str]:
    for name, what in LIMITED.items():
        rise = 1 / ratio_of(base, other, name).mean - 1
        if rise > MARGIN:
            yield f"{what} is {rise:.0%} higher"
    shares = [_share(trial, base) for trial in (base, other)]
    if shares[0] is not None and shares[1] is not None and shares[1] < shares[0] - SLO_MARGIN:
        yield f"{shares[1]:.1%} instead of {shares[0]:.1%} of requests are within the SLO"


def _share(trial: Trial, base: Trial) -> float | None:
    """Mean share of requests within the SLO, over the seeds that both have."""
    count = min(len(trial.row.metrics), len(base.row.metrics))
    shares = [one.goodput for one in trial.row.metrics[:count] if one.goodput is not None]
    return fmean(shares) if shares else None


def ranked(base: Trial, trials: Sequence[Trial]) -> list[Trial]:
    """Best first: within the margins, then by the ratio."""
    return sorted(
        trials, key=lambda trial: (bool(exceeded(base, trial)), -ratio_of(base, trial).mean)
    )


def best_of(base: Trial, trials: Sequence[Trial]) -> Trial:
    """The best within the margins; of equal ones the one that changes fewest of Dynamo's defaults.

    The base is always among them.
    """
    allowed = [base, *(trial for trial in trials if not exceeded(base, trial))]
    highest = max(ratio_of(base, trial).mean for trial in allowed)
    equal = [t for t in allowed if ratio_of(base, t).mean >= highest * (1 - TIE)]
    return min(equal, key=lambda t: (t is not base, len(t.settings.changes), t.settings.order))


def queue_share(row: Row) -> float:
    """The p90 of the prefill queue time as a share of the TTFT's p90."""
    shares = []
    for result in row.results:
        requests = steady_requests(result)
        queued = percentile([r.prefill_queue_ms for r in requests], 0.9)
        shares.append(queued / max(percentile([r.ttft_ms for r in requests], 0.9), SMALLEST_MS))
    return median(shares)
