"""Is a new release worse than the old one? Pure.

Each answer needs evidence: a difference that chance explains is no reason to shift back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.shift.counts import Counts, Latency
from penstock.text.numbers import significant

WIDTH = 2.58  # standard errors on each side: an interval of 99%
CHANCE = 0.01  # of as many errors if the new release had the error rate of the old one
FEWEST_ERRORS = 2  # one error can happen to any release
FEWEST_REQUESTS = 20  # for a latency
HANGS_AFTER_S = 30.0
HANGS_AFTER = 10  # requests without a first token


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is compared."""

    old: Sequence[Counts]
    """The old release before the shift, and at the same time as the new one. The new release is
    slower only if it is slower than both: with less load, the old release becomes faster."""
    new: Counts
    """Since the current step began."""
    old_errors: tuple[Counts, Counts]
    """Of the old release since its frontends started, and since the shift began."""
    new_errors: Counts
    """Of the new release since the shift began."""
    seconds: float
    """Since the current step began."""


def failures_of(evidence: Evidence) -> list[str]:
    """Why the new release fails more than the old one; empty if nothing shows it."""
    reasons = _errors(*evidence.old_errors, evidence.new_errors)
    new = evidence.new
    if new.ttft is None and new.started >= HANGS_AFTER and evidence.seconds >= HANGS_AFTER_S:
        reasons.append(
            f"none of {new.started} requests has got a token in {evidence.seconds:.0f} s"
        )
    return reasons


def latencies_of(evidence: Evidence, slower: float) -> list[str]:
    """Which latencies are longer than those of the old release by more than this factor."""
    old, new = evidence.old, evidence.new
    return [
        *_latency("TTFT", [counts.ttft for counts in old], new.ttft, slower),
        *_latency("ITL", [counts.itl for counts in old], new.itl, slower),
    ]


def _errors(lifetime: Counts, recent: Counts, new: Counts) -> list[str]:
    """The whole life of the old release shows the smallest differences, but what now affects both
    releases is not in it, and an old failure of the old release excuses nothing."""
    if new.errors < FEWEST_ERRORS:
        return []
    is_twice = new.errors * recent.completed > 2 * recent.errors * new.completed
    for old, is_valid in ((lifetime, is_twice), (recent, True)):
        share = new.completed / (new.completed + old.completed)
        if is_valid and _tail(new.errors, new.errors + old.errors, share) < CHANCE:
            before = f"{old.errors} of {old.completed:,} of the old release"
            return [f"{new.errors} of its {new.completed:,} requests failed, but {before}"]
    return []


def _latency(
    name: str, old: Sequence[Latency | None], new: Latency | None, slower: float
) -> list[str]:
    known = [latency for latency in old if latency and latency.count >= FEWEST_REQUESTS]
    if new is None or new.count < FEWEST_REQUESTS or not known:
        return []
    if not all(_is_above(new, latency, slower) for latency in known):
        return []
    slowest = max(known, key=lambda latency: latency.mean_s)
    return [f"the mean {name} is {_interval(new)}; of the old release, it is {_interval(slowest)}"]


def _is_above(new: Latency, old: Latency, slower: float) -> bool:
    """Whether the difference is larger than its error."""
    error_s = math.hypot(new.error_s, slower * old.error_s)
    return new.mean_s - slower * old.mean_s > WIDTH * error_s


def _interval(latency: Latency) -> str:
    return (
        f"{significant(latency.mean_s * 1e3)} ± {significant(WIDTH * latency.error_s * 1e3, 2)} ms"
    )


def _tail(least: int, draws: int, share: float) -> float:
    """The probability of at least ``least`` of ``draws``, each of probability ``share``."""
    if share >= 1:
        return 1.0
    log_share, log_rest = math.log(share), math.log1p(-share)
    total = 0.0
    for k in range(least, draws + 1):
        ways = math.lgamma(draws + 1) - math.lgamma(k + 1) - math.lgamma(draws - k + 1)
        total += math.exp(ways + k * log_share + (draws - k) * log_rest)
    return min(1.0, total)
