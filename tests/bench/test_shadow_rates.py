"""The exact tests of `bench shadow`, and how often equal endpoints have a finding."""

from __future__ import annotations

import random
from itertools import product

import pytest

from penstock.bench.shadow.requests import CHAT, ShadowRequest
from penstock.bench.shadow.response import ShadowResponse
from penstock.bench.shadow.run import Pair
from penstock.bench.shadow.verdict import (
    LEVEL,
    Verdict,
    fisher,
    sign_test,
    smallest_hits,
    verdict_of,
)


def test_fishers_test_agrees_with_counting_all_tables() -> None:
    """Each choice of which 3 of the 7 observations are hits has the same probability."""
    observations, chosen = range(7), 3
    tables = [s for s in product((0, 1), repeat=len(observations)) if sum(s) == chosen]
    for high in range(4):
        expected = sum(sum(table[:4]) >= high for table in tables) / len(tables)
        assert fisher(high, 4, chosen - high, 3) == pytest.approx(expected)


def test_known_p_values() -> None:
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)  # Fisher's lady tasting tea
    assert sign_test(9, 1) == pytest.approx(22 / 1024)
    assert sign_test(0, 0) == fisher(0, 0, 0, 5) == fisher(1, 1, 0, 0) == 1


def test_the_smallest_number_of_hits_is_significant_and_one_less_is_not() -> None:
    for of_high, of_low, low in product((10, 100, 500), (10, 100), (0, 3)):
        hits = smallest_hits(of_high, of_low, low, 0.002)
        if hits is not None:
            assert fisher(hits, of_high, low, of_low) <= 0.002
            assert fisher(hits - 1, of_high, low, of_low) > 0.002
    assert smallest_hits(100, 100, 95, 0.002) is None
    assert smallest_hits(100, 100, 0, LEVEL / 6) == 9  # docs/shadow.md: chat requests
    assert smallest_hits(100, 100, 0, LEVEL / 8) == 10  # with tools
    assert smallest_hits(100, 0, 0, 0.002) is None


@pytest.mark.slow
@pytest.mark.parametrize("variation", [0.05, 0.5])
def test_equal_endpoints_that_vary_seldom_have_a_finding(variation: float) -> None:
    """At most 1% of the runs may have one; then more than 9 of 300 have a probability of 0.1%."""
    chance = random.Random(0)

    def response() -> ShadowResponse:
        is_other = chance.random() < variation
        return ShadowResponse(
            text="other" if is_other else "usual",
            finish_reason="length" if chance.random() < variation else "stop",
            prompt_tokens=9,
            completion_tokens=chance.randrange(8, 11),
        )

    runs = [
        [
            Pair(
                request=ShadowRequest(id=str(number), path=CHAT, body={}),
                first=response(),
                second=response(),
                repeat=response() if number < 30 else None,
            )
            for number in range(60)
        ]
        for _ in range(300)
    ]
    assert sum(verdict_of(run).verdict is Verdict.FINDINGS for run in runs) <= 9
