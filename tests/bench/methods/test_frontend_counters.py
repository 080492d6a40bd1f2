"""The counters of a frontend, and the throughput of single requests from their sums."""

from __future__ import annotations

from math import ceil, inf
from random import Random

import pytest

from penstock.bench.methods.frontend_counters import (
    LATE,
    Bounds,
    Counters,
    RequestSpeeds,
    fastest,
    quantile,
    read_scrape,
)
from tests.bench.methods.frontends import MODEL, Frontend


def test_the_counters_of_one_model_are_read() -> None:
    frontend = Frontend()
    frontend.finish(ttft_s=0.03, duration_s=2.0, tokens=100)
    frontend.fail("internal")
    scrape = read_scrape(frontend.text, MODEL.lower())  # a frontend may write it in lower case
    counters = scrape.counters
    assert (scrape.process, scrape.uptime_s) == ("a1", 1000.0)
    assert counters.ttft == {0.0: 0, 0.022: 0, 0.047: 1, 0.1: 1, inf: 1}
    assert (counters.durations, counters.duration_s) == (2, pytest.approx(2.1))
    assert (counters.lengths, counters.tokens) == (1, 100)
    assert (counters.ok, counters.errors, counters.client_errors) == (1, 1, 0)


def test_a_model_without_requests_has_no_counts() -> None:
    assert read_scrape(Frontend().text, "another").counters == Counters()


@pytest.mark.parametrize("kind", ["validation", "not_found", "not_implemented", "cancelled"])
def test_errors_of_clients_do_not_lower_the_uptime(kind: str) -> None:
    counters = Counters(outcomes={("success", ""): 9, ("error", kind): 5})
    assert (counters.uptime, counters.client_errors) == (1.0, 5)


@pytest.mark.parametrize("kind", ["internal", "overload", "a new one"])
def test_other_errors_lower_the_uptime(kind: str) -> None:
    assert Counters(outcomes={("success", ""): 9, ("error", kind): 1}).uptime == 0.9


def test_there_is_no_uptime_without_requests() -> None:
    assert Counters().uptime is None
    assert Counters(outcomes={("error", "validation"): 1}).uptime is None


def test_a_counter_that_fell_was_reset() -> None:
    assert (Counters(tokens=1) - Counters(tokens=2)).is_below_zero
    assert (Counters() - Counters(outcomes={("success", ""): 1})).is_below_zero
    assert not (Counters(tokens=2, duration_s=0.1) - Counters(tokens=1)).is_below_zero


BUCKETS = {0.0: 0.0, 0.1: 10.0, 0.2: 10.0, 0.4: 90.0, inf: 100.0}


@pytest.mark.parametrize(
    ("buckets", "share", "estimate"),
    [
        (BUCKETS, 0.05, (0.05, 0.0, 0.1)),
        (BUCKETS, 0.1, (0.1, 0.0, 0.1)),
        (BUCKETS, 0.5, (0.3, 0.2, 0.4)),  # half of the 80 requests in the bucket are lower
        (BUCKETS, 0.9, (0.4, 0.2, 0.4)),
        (BUCKETS, 0.99, (None, 0.4, inf)),
        ({1.0: 0.0, 2.0: 4.0, inf: 4.0}, 0.5, (1.5, 1.0, 2.0)),
        ({}, 0.5, None),
        ({0.1: 0.0, inf: 0.0}, 0.5, None),
    ],
)
def test_a_percentile_is_interpolated_in_its_bucket(
    buckets: dict[float, float], share: float, estimate: tuple[float | None, float, float] | None
) -> None:
    percentile = quantile(buckets, share)
    values = percentile and (percentile.value, percentile.low, percentile.high)
    assert values == (pytest.approx(estimate) if estimate else None)


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
