"""The throughput of single requests, from sums."""

from __future__ import annotations

from math import ceil, inf
from random import Random

import pytest

from penstock.bench.methods.frontend_counters import LATE, Bounds, Counters, RequestSpeeds, fastest

OK = ("success", "")


def change(
    *, count: int = 1, tokens: int = 0, seconds: float = 0.0, lengths: int | None = None
) -> Counters:
    return Counters(
        outcomes={OK: count},
        durations=count,
        duration_s=seconds,
        lengths=count if lengths is None else lengths,
        tokens=tokens,
    )


def read(*changes: Counters) -> RequestSpeeds:
    speeds = RequestSpeeds()
    for change in changes:
        speeds.add(change)
    return speeds


def test_a_request_that_ended_alone_is_known() -> None:
    speeds = read(Counters(), change(tokens=100, seconds=4.0), Counters())
    assert (speeds.known, speeds.unknown) == ([25.0], 0)


def test_requests_that_ended_together_are_not_known() -> None:
    speeds = read(change(count=3, tokens=100, seconds=4.0), change(tokens=10, seconds=1.0))
    assert (speeds.known, speeds.unknown) == ([10.0], 3)


def test_sums_that_do_not_match_yet_are_completed_by_the_next_reading() -> None:
    early = Counters(lengths=1, tokens=60)  # the duration is counted after the tokens
    late = Counters(outcomes={OK: 1}, durations=1, duration_s=2.0)
    assert read(early, late).known == [30.0]


def test_a_failed_request_makes_those_that_ended_with_it_unknown() -> None:
    failed = Counters(outcomes={("error", "internal"): 1}, durations=1, duration_s=9.0)
    speeds = read(failed + change(tokens=10, seconds=1.0), change(tokens=10, seconds=1.0))
    assert (speeds.known, speeds.unknown) == ([10.0], 1)


def test_sums_that_never_match_are_given_up() -> None:
    speeds = read(*[change(lengths=0)], *[Counters()] * LATE, change(tokens=8, seconds=2.0))
    assert (speeds.known, speeds.unknown) == ([4.0], 1)


def test_the_percentile_of_known_requests_is_exact() -> None:
    known = [float(n) for n in range(1, 101)]
    assert fastest(known, 0, 0.9) == Bounds(low=11.0, high=11.0)  # 90 of 100 are at least as fast
    assert fastest(known, 0, 0.5) == Bounds(low=51.0, high=51.0)


def test_too_many_unknown_requests_leave_no_bound() -> None:
    assert fastest([5.0], 9, 0.5) == Bounds(low=0.0, high=inf)
    assert fastest([], 0, 0.5) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_bounds_contain_the_percentile_of_all_requests(seed: int) -> None:
    random = Random(seed)
    every = [random.uniform(1, 500) for _ in range(random.randrange(2, 60))]
    known = [each for each in every if random.random() < 0.8]
    for share in (0.5, 0.75, 0.9, 0.99):
        true = sorted(every, reverse=True)[ceil(share * len(every)) - 1]
        bounds = fastest(known, len(every) - len(known), share)
        assert bounds is not None
        assert bounds.low <= true <= bounds.high
