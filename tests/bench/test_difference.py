"""Confidence intervals of the differences between two targets."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.bench.compare_report import changes_of
from penstock.bench.difference import (
    METRICS,
    Both,
    Difference,
    differences,
    interval,
    student,
)
from penstock.reports.model import Chart
from penstock.simulate.window import ServedRequest
from tests.bench.hand_written import served

PAIRS, PER_PAIR = 12, 15
RUNS = 300


def request(ttft_ms: float, itl_ms: float, tokens: int) -> ServedRequest:
    return served(ttft_ms, ttft_ms + itl_ms * (tokens - 1), tokens)


def pairs_of(
    random: Random, slowdown: float = 1.0, tokens: int | None = None, deviation: float = 0.03
) -> list[list[Both]]:
    """Lengths differ by request, and each slice of a target has its own ``deviation``."""
    pairs = []
    for _ in range(PAIRS):
        deviations = [random.lognormvariate(0, deviation) for _ in range(2)]
        pair = []
        for _ in range(PER_PAIR):
            count, prompt_ms = tokens or random.randint(20, 400), random.uniform(50, 500)
            first, other = (
                request(
                    prompt_ms * each * factor * random.lognormvariate(0, 0.1),
                    10 * each * factor * random.lognormvariate(0, 0.02),
                    count,
                )
                for each, factor in zip(deviations, (1.0, slowdown), strict=True)
            )
            pair.append((first, other))
        pairs.append(pair)
    return pairs


def by_metric(pairs: list[list[Both]]) -> dict[str, Difference]:
    return {difference.metric: difference for difference in differences(pairs)}


@pytest.mark.parametrize(
    ("freedom", "share", "expected"),
    [
        (4, 0.995, 4.604),
        (5, 0.995, 4.032),
        (10, 0.995, 3.169),
        (30, 0.995, 2.750),
        (8, 0.95, 1.860),
    ],
)
def test_quantiles_of_students_t_match_published_tables(
    freedom: int, share: float, expected: float
) -> None:
    assert student(share, freedom) == pytest.approx(expected, rel=0.005)


@pytest.mark.slow
def test_equal_targets_are_rarely_called_different() -> None:
    """A claim about any latency in at most about 1% of the runs; 9 of 300 has a probability of
    0.4% at this level."""
    random = Random(1)
    claims = sum(
        any(difference.claim for difference in differences(pairs_of(random))) for _ in range(RUNS)
    )
    assert claims <= 9


@pytest.mark.slow
def test_99_percent_intervals_rarely_miss_the_true_change() -> None:
    random = Random(2)
    contained = dict.fromkeys(METRICS, 0)
    for _ in range(RUNS):
        for metric, each in by_metric(pairs_of(random, 1.1)).items():
            assert each.low is not None
            assert each.high is not None
            contained[metric] += each.low <= 0.1 <= each.high
    assert min(contained.values()) >= 0.96 * RUNS, contained


def test_a_slowdown_of_5_percent_is_found() -> None:
    random = Random(3)
    differences_found = [
        by_metric(pairs_of(random, 1.05, deviation=0.015))["e2e_mean"].claim for _ in range(50)
    ]
    assert differences_found.count(1) >= 45
    assert differences_found.count(-1) == 0


def test_a_faster_second_target_has_a_negative_claim() -> None:
    difference = by_metric(pairs_of(Random(4), 0.8))["ttft_mean"]
    assert difference.claim == -1
    assert difference.change == pytest.approx(-0.2, abs=0.05)
    assert difference.second_ms < difference.first_ms


def test_no_claim_is_made_about_percentiles() -> None:
    differences_found = by_metric(pairs_of(Random(5), 1.5))
    assert {
        each.claim for metric, each in differences_found.items() if metric.endswith("_mean")
    } == {1}
    assert {
        each.claim for metric, each in differences_found.items() if not metric.endswith("_mean")
    } == {0}


def test_responses_of_one_token_have_no_itl() -> None:
    differences_found = by_metric(pairs_of(Random(6), tokens=1))
    assert set(differences_found) == {metric for metric in METRICS if not metric.startswith("itl")}


def test_responses_in_one_piece_do_not_count_for_the_itl_of_either_target() -> None:
    pairs = pairs_of(Random(8))
    for position in (0, 1):
        changed = [
            [
                both
                if number % 2
                else tuple(
                    replace(each, itl_ms=None) if at == position else each
                    for at, each in enumerate(both)
                )
                for number, both in enumerate(pair)
            ]
            for pair in pairs
        ]
        assert abs(by_metric(changed)["itl_mean"].change) < 0.1  # type: ignore[arg-type]


def test_percentiles_of_few_requests_per_slice_have_no_interval() -> None:
    """In simulations, intervals of 99% contained the true p90 only in 95% of the runs."""
    differences_found = by_metric([pair[:PAIRS] for pair in pairs_of(Random(7))])
    assert {metric for metric, each in differences_found.items() if each.low is None} == {
        metric for metric in METRICS if not metric.endswith("_mean")
    }


def test_an_interval_of_values_near_0_is_not_shown_as_a_huge_number() -> None:
    difference = Difference(
        metric="itl_p50", first_ms=0.5, second_ms=2.7, change=4.2, low=-1.0, high=2.5e13, claim=0
    )
    assert interval(difference) == "-100.0% to more than +1000%"
    assert interval(replace(difference, low=0.039, high=0.063)) == "+3.9% to +6.3%"
    slow = replace(difference, change=19.0, low=18.5, high=19.5)
    assert interval(slow) == "+1850.0% to +1950.0%"
    assert interval(replace(slow, high=1e9)) == "+1850.0% to more than +3800%"
    chart, _ = changes_of([difference], [])
    assert isinstance(chart, Chart)
    assert chart.series[0].errors == [pytest.approx((520, 1000 - 420))]
