"""Comparisons of two settings, with values computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.simulate.study import Row
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings
from penstock.tune.tuning import best_of, exceeded, queue_share, ranked, ratio_of
from tests.simulate.test_metrics import steady
from tests.tune.scripted import TUNED, deployment, metrics, trial

BASE = trial(DYNAMO_DEFAULT, [200, 100, 400])


def test_the_ratio_is_a_geometric_mean_over_the_same_seeds() -> None:
    found = ratio_of(BASE, trial(TUNED, [100, 50, 200]))
    assert found.mean == pytest.approx(2)
    assert found.low == pytest.approx(2)  # every seed agrees
    mixed = ratio_of(BASE, trial(TUNED, [100, 100, 200]))
    assert mixed.mean == pytest.approx(4 ** (1 / 3))
    assert mixed.low is not None
    assert mixed.low < 1  # three seeds that differ by so much show nothing
    assert ratio_of(BASE, trial(TUNED, [100])).low is None


def test_more_seeds_give_a_tighter_bound() -> None:
    few = ratio_of(trial(DYNAMO_DEFAULT, [100] * 3), trial(TUNED, [80, 90, 85]))
    many = ratio_of(trial(DYNAMO_DEFAULT, [100] * 15), trial(TUNED, [80, 90, 85] * 5))
    assert few.low is not None
    assert many.low is not None
    assert few.low < many.low < many.mean == pytest.approx(few.mean)


@pytest.mark.parametrize(
    ("values", "clause"),
    [
        ({"ttft_p99_ms": 53}, "TTFT p99 is 6% higher"),
        ({"ttft_p99_ms": 52}, None),
        ({"itl_p90_ms": 10.6}, "ITL p90 is 6% higher"),
        ({"itl_p90_ms": 10.4}, None),
        ({"goodput": 0.98}, "98.0% instead of 100.0% of requests are within the SLO"),
        ({"goodput": 0.995}, None),
        ({"goodput": None}, None),
        ({"itl_p90_ms": None}, None),  # every output has one token
    ],
)
def test_the_margins(values: dict[str, Any], clause: str | None) -> None:
    assert exceeded(BASE, trial(TUNED, [100] * 3, **values)) == ([clause] if clause else [])


def test_the_best_is_within_the_margins_and_changes_least() -> None:
    best = trial(TUNED, [100, 50, 200])
    slow_tail = trial(RouterSettings(8, 4), [10, 10, 10], ttft_p99_ms=90)
    equal = trial(RouterSettings(4, 1), [100.5, 50, 200])
    worse = trial(RouterSettings(8, 1), [300, 300, 400])
    assert best_of(BASE, [best, slow_tail, worse]) is best
    assert best_of(BASE, [best, equal]) is equal
    assert best_of(BASE, [worse, slow_tail]) is BASE
    assert ranked(BASE, [slow_tail, worse, best]) == [best, worse, slow_tail]


def test_a_difference_below_one_percent_is_no_reason_to_change() -> None:
    assert best_of(BASE, [trial(TUNED, [199, 99.5, 398])]) is BASE


def test_the_share_of_queueing() -> None:
    result = steady()
    row = Row(replayable=deployment(), metrics=(metrics(),), results=(result,))
    assert queue_share(row) == pytest.approx(5 / 50)
