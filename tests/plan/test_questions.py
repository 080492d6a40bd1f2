"""Headroom, comparisons and misses, over deployments that break at known loads."""

from __future__ import annotations

import pytest

from penstock.graph.cluster import Slo
from penstock.plan.questions import compared, headroom, nearest_miss
from penstock.plan.trials import Ask
from tests.plan.wanted import TAKES_MS, Behaviour, split, together, trials


@pytest.mark.parametrize(("holds", "said"), [(1.0, 1.0), (1.7, 1.6), (100.0, 8.0)])
def test_headroom_is_the_highest_step_that_is_held(holds: float, said: float) -> None:
    asked = trials({together(1): Behaviour(holds=holds)})
    assert headroom(asked, together(1), 1.0) == said


def test_a_split_pays_where_one_pool_breaks_or_is_slower() -> None:
    one, other = split(4, 4), together(8)
    asked = trials({one: Behaviour(holds=3, user_rate=101), other: Behaviour(holds=1.5)})
    found = compared(asked, one, other, 1.0)
    assert [(each.factor, each.pays) for each in found] == [
        (0.25, False),
        (0.5, False),
        (1.0, False),
        (2.0, True),
        (4.0, False),
    ]
    asked = trials({one: Behaviour(holds=3, user_rate=110), other: Behaviour(holds=3)})
    assert [each.pays for each in compared(asked, one, other, 1.0)] == [True] * 4 + [False]


def test_a_faster_split_with_more_gpus_does_not_pay() -> None:
    one, other = split(4, 4), together(4)
    asked = trials({one: Behaviour(holds=3, user_rate=200), other: Behaviour(holds=3)})
    assert not any(each.pays for each in compared(asked, one, other, 1.0))


def test_the_nearest_miss_says_what_it_meets() -> None:
    asked = trials({together(1): Behaviour(holds=0.5), together(2): Behaviour(holds=0.1)})
    asked.of([Ask(together(1)), Ask(together(2))])
    slo = Slo(ttft_ms=TAKES_MS - 1)
    miss = nearest_miss(asked, slo)
    assert miss
    assert miss.load == 0.5
    assert miss.slo.ttft_ms == pytest.approx(TAKES_MS * 1.02)
    assert miss.slo.itl_ms is None


def test_without_a_replay_there_is_no_miss() -> None:
    assert nearest_miss(trials({}), Slo(ttft_ms=1)) is None
