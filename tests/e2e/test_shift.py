"""`gateway shift` under load: a good release, then the way back with a limit that it misses.

Other releases, and more of them: benchmarks/shifts.py.
"""

from __future__ import annotations

import pytest

from shifts import PROMOTED, WORSE, Case, running, shift

pytestmark = pytest.mark.needs("envoy")

QUICK = ("--steps", "50,100", "--step-s", "3", "--step-requests", "20", "--copies", "100")


def test_requests_move_to_a_good_release_and_stay_with_a_better_one() -> None:
    with running(Case()) as releases:
        promoted = shift(releases, PROMOTED, QUICK)
        refused = shift(releases, WORSE, (*QUICK, "--slower", "0.3"))
    assert promoted["is_correct"], promoted
    assert refused["is_correct"], refused
    assert "new: it is worse than old: the mean " in refused["reason"]
    for each in (promoted, refused):
        assert set(each["clients"]) == {"200"}, each["clients"]
    # Copies, half of the requests, and all of them.
    assert promoted["new_requests"] > 60
