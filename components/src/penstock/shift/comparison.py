"""Is a new release worse than the old one? Pure.

Each answer needs evidence: a difference that chance explains is no reason to shift back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.shift.counts import Counts, Latency
from penstock.text.numbers import significant

WIDTH = 2.58  # standard errors on each side: an interval of 99%
# Of as many errors if the new release had the error rate of the old one. Below 1%, because the
# comparison is repeated every two seconds.
CHANCE = 0.002
RECENT_CHANCE = 0.05  # the same, with the errors since the shift began, if its lifetime shows more
FEWEST_ERRORS = 2  # one error can happen to any release
FEWEST_REQUESTS = 20  # for a latency
WAITING_S = 30.0  # requests that have no token are compared with those that start in this time
FEWEST_WAITING, SHARE_WAITING = 5, 0.05


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Requests that have no token yet."""

    started: int
    """Of all requests, those that started in the last `WAITING_S`."""
    without_token: int

    @property
    def share(self) -> float:
        return self.without_token / self.started if self.started else 0.0


def failures_of(
    lifetime: Counts, recent: Counts, new: Counts, waiting: tuple[Waiting, Waiting]
) -> list[str]:
    """Why the new release fails more than the old one; empty if nothing shows it.

    ``lifetime``, ``recent``: of the old release, since its frontends started and since the shift
    began. ``new``: of the new release, since the shift began. ``waiting``: of both.
    """
    reasons = _errors(lifetime, recent, new)
    before, now = waiting
    if now.without_token >= FEWEST_WAITING and now.share > SHARE_WAITING + 2 * before.share:
        reasons.append(
            f"{now.without_token} requests have no token yet, and {now.started:,} have started in "
            f"{WAITING_S:.0f} s"
        )
    return reasons


def latencies_of(old: Counts, new: Counts, slower: float, *, with_ttft: bool) -> list[str]:
    """Which mean latencies are longer than those of the old release by more than this factor."""
    return [
        *(_latency("TTFT", old.ttft, new.ttft, slower) if with_ttft else ()),
        *_latency("ITL", old.itl, new.itl, slower),
    ]


def _errors(lifetime: Counts, recent: Counts, new: Counts) -> list[str]:
    """The whole life of the old release shows the smallest differences, but what now affects both
    releases is not in it, and an old failure of the old release excuses nothing."""
    if new.errors < FEWEST_ERRORS:
        return []
    now = _chance(recent, new)
    if now < CHANCE or (now < RECENT_CHANCE and _chance(lifetime, new) < CHANCE):
        before = f"{recent.errors} of {recent.completed:,} of the old release"
        return [f"{new.errors} of its {new.completed:,} requests failed, but {before}"]
    return []


def _chance(old: Counts, new: Counts) -> float:
    """The probability of as many errors of the new release if both have the same error rate."""
    share = new.completed / (new.completed + old.completed)
    return _tail(new.errors, new.errors + old.errors, share)


def _latency(name: str, old: Latency | None, new: Latency | None, slower: float) -> list[str]:
    if old is None or new is None or min(old.count, new.count) < FEWEST_REQUESTS:
        return []
    # Only a difference that is larger than its error.
    error_s = math.hypot(new.error_s, slower * old.error_s)
    if new.mean_s - slower * old.mean_s <= WIDTH * error_s:
        return []
    return [f"the mean {name} is {interval(new)}; of the old release, it is {interval(old)}"]


def interval(latency: Latency) -> str:
    """The mean and its 99% interval."""
    half_s = WIDTH * latency.error_s
    return f"{significant(latency.mean_s * 1e3)} ± {significant(half_s * 1e3, 2)} ms"


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
