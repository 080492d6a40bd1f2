"""`--fail-if 'ttft_p90 > +5%'`: limits of the changes between two targets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.bench.difference import INTERVAL, METRICS, interval
from penstock.errors import LimitError, Problem, UndecidedError

if TYPE_CHECKING:
    from penstock.bench.compare import Comparison

_LIMIT = re.compile(r"\s*(\w+)\s*>\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


class Outcome(StrEnum):
    """Of a limit, by the interval of the change."""

    PASSED = "passed"
    EXCEEDED = "exceeded"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The most that a metric of the second target may be higher than that of the first."""

    metric: str
    """Metric of the limit, as in `differences`."""
    most: float
    """Highest permitted change from A to B as a share."""

    def __str__(self) -> str:
        return f"{self.metric} > {self.most * 100:+.4g}%"


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    limit: Limit
    """The limit of `--fail-if`."""
    outcome: Outcome
    """Whether the complete interval is below the limit, above it, or contains it."""
    reason: str
    """Interval that decided the outcome, or why there is none."""
    fix: str = ""
    """Option that may decide the limit; empty if it is decided."""

    def __str__(self) -> str:
        return f"{self.limit}: {self.outcome} ({self.reason})"


def limit_of(text: str) -> Limit:
    """ValueError with the reason if ``text`` is not a limit."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form 'ttft_p90 > +5%'")
    metric, percent = match.groups()
    if metric not in METRICS:
        raise ValueError(f"{metric!r} is not one of {', '.join(METRICS)}")
    return Limit(metric=metric, most=float(percent) / 100)


def check_limits(comparison: Comparison, limits: Sequence[Limit]) -> list[LimitCheck]:
    """Undecided if the interval contains the limit, and if there is no interval or no verdict."""
    return [_check(comparison, limit) for limit in limits]


def _check(comparison: Comparison, limit: Limit) -> LimitCheck:
    change = next(
        (difference for difference in comparison.differences if difference.metric == limit.metric),
        None,
    )
    if change is None or not comparison.has_verdict:
        reason = comparison.no_verdict or "no request has this metric"
        return LimitCheck(limit=limit, outcome=Outcome.UNDECIDED, reason=reason)
    if change.low is None or change.high is None:
        fix = "Use a longer --slice, a higher --rate, or the metric with _mean."
        return LimitCheck(limit=limit, outcome=Outcome.UNDECIDED, reason=interval(change), fix=fix)
    outcome, fix = Outcome.UNDECIDED, "Use a longer --duration."
    if change.low > limit.most:
        outcome, fix = Outcome.EXCEEDED, ""
    elif change.high <= limit.most:
        outcome, fix = Outcome.PASSED, ""
    reason = f"{INTERVAL} {interval(change)}"
    return LimitCheck(limit=limit, outcome=outcome, reason=reason, fix=fix)


def require_limits(checks: Sequence[LimitCheck]) -> None:
    """LimitError for the limits that are exceeded, else UndecidedError for those undecided."""
    exceeded = [check for check in checks if check.outcome is Outcome.EXCEEDED]
    if exceeded:
        raise LimitError(*map(_problem, exceeded))
    undecided = [check for check in checks if check.outcome is Outcome.UNDECIDED]
    if undecided:
        raise UndecidedError(*map(_problem, undecided))


def _problem(check: LimitCheck) -> Problem:
    return Problem(place="--fail-if", message=str(check), fix=check.fix)
