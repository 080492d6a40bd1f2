"""The limits of `--fail-if`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.bench.aiperf import Endpoint
from penstock.bench.compare import (
    CompareRequest,
    Comparison,
    Outcome,
    Slicing,
    check_limits,
    limit_of,
    require_limits,
)
from penstock.bench.difference import Difference
from penstock.bench.measurement import Failures
from penstock.errors import LimitError, UndecidedError
from penstock.workload import find_workload

ENDPOINT = Endpoint(url="http://127.0.0.1:1", model="m")
REQUEST = CompareRequest(
    endpoints=(ENDPOINT, ENDPOINT),
    workload=find_workload("short-chat"),
    slicing=Slicing(pairs=10, slice_ms=3_000, gap_ms=1_000),
    seed=0,
    timeout_s=1.0,
)
CHANGE = Difference(
    metric="ttft_p90", first_ms=100.0, second_ms=110.0, change=0.1, low=0.06, high=0.14, claim=0
)


def comparison(failed: int = 0, changes: Sequence[Difference] = (CHANGE,)) -> Comparison:
    return Comparison(
        request=REQUEST,
        pairs=9,
        requests=100,
        differences=changes,
        failures=(
            Failures(sent=100, reasons={}),
            Failures(sent=100, reasons={"HTTP 500": failed} if failed else {}),
        ),
        unsent=(0, 0),
        skew_ms=0.0,
        overlapping=0.0,
        distortion="",
        interrupted="",
    )


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        ("ttft_p90 > +5%", Outcome.EXCEEDED),
        ("ttft_p90>5%", Outcome.EXCEEDED),
        ("ttft_p90 > 10%", Outcome.UNDECIDED),
        ("ttft_p90 > +14.5%", Outcome.PASSED),
        ("ttft_p90 > -1%", Outcome.EXCEEDED),
        ("itl_p90 > +5%", Outcome.UNDECIDED),
    ],
)
def test_a_limit_is_judged_by_the_interval(limit: str, outcome: Outcome) -> None:
    (checked,) = check_limits(comparison(), [limit_of(limit)])
    assert checked.outcome is outcome


def test_nothing_is_decided_if_too_many_requests_failed() -> None:
    (checked,) = check_limits(comparison(failed=2), [limit_of("ttft_p90 > +50%")])
    assert checked.outcome is Outcome.UNDECIDED
    assert "2.0% of the requests to B failed" in str(checked)


def test_a_percentile_of_few_requests_per_slice_is_undecided() -> None:
    change = replace(CHANGE, low=None, high=None)
    (checked,) = check_limits(comparison(changes=[change]), [limit_of("ttft_p90 > +5%")])
    assert checked.outcome is Outcome.UNDECIDED
    with pytest.raises(UndecidedError, match=r"too few requests.*--slice"):
        require_limits([checked])


def test_one_failure_in_a_hundred_does_not_prevent_a_verdict() -> None:
    (checked,) = check_limits(comparison(failed=1), [limit_of("ttft_p90 > +50%")])
    assert checked.outcome is Outcome.PASSED


def test_an_exceeded_limit_is_an_error_even_if_another_is_undecided() -> None:
    checked = check_limits(comparison(), [limit_of("ttft_p90 > +10%"), limit_of("ttft_p90 > +5%")])
    with pytest.raises(
        LimitError, match=r"ttft_p90 > \+5%: exceeded \(99% interval \+6.0% to \+14.0%"
    ):
        require_limits(checked)
    with pytest.raises(UndecidedError, match=r"ttft_p90 > \+10%.*--duration"):
        require_limits(checked[:1])


def test_limits_that_are_met_are_no_error() -> None:
    require_limits(check_limits(comparison(), [limit_of("ttft_p90 > +20%")]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft_p90", "is not of the form 'ttft_p90 > "),
        ("ttft_p90 < 5%", "is not of the form"),
        ("ttft_p90 > 5ms", "is not of the form"),
        ("ttft_p95 > 5%", "'ttft_p95' is not one of ttft_mean, ttft_p50"),
    ],
)
def test_a_text_that_is_no_limit_is_an_error(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        limit_of(text)
