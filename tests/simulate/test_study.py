"""The search for the load that is held, over a deployment that breaks at a known one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from penstock.graph.cluster import Slo
from penstock.simulate.cache import Cache
from penstock.simulate.outcome import outcome
from penstock.simulate.replay import Replays
from penstock.simulate.replayable import Replayable
from penstock.simulate.study import Row, Study, sped_up
from penstock.workload import find_workload
from penstock.workload.model import Arrival
from tests.simulate.test_outcome import steady
from tests.simulate.test_replayable import of

DEPLOYMENT = of("gpt-oss-120b-b200-throughput")
WELL, BADLY = Slo(ttft_ms=51), Slo(ttft_ms=49)  # `steady` takes 50


@dataclass(frozen=True, kw_only=True)
class Breaking(Study):
    breaks_at: float
    long_breaks_at: float = 1e9

    def at(self, deployment: Replayable, factor: float, longer: int = 1) -> Row:
        breaks_at = min(self.breaks_at, self.long_breaks_at) if longer > 1 else self.breaks_at
        slo = WELL if factor < breaks_at else BADLY
        found = (outcome(steady(), 1, slo),)
        return Row(replayable=deployment, outcomes=found, answers=(), factor=factor)


def study(breaks_at: float) -> Breaking:
    replays = Replays(Cache(None, ""), processes=1)
    return Breaking(workload=find_workload("short-chat"), replays=replays, breaks_at=breaks_at)


@pytest.mark.parametrize("breaks_at", [0.01, 0.3, 0.99, 1.01, 7, 900])
def test_the_load_is_found_within_three_percent(breaks_at: float) -> None:
    heard: list[str] = []
    (found,) = study(breaks_at).held([DEPLOYMENT], heard.append)
    assert found.most is not None
    assert found.broken is not None
    assert found.most.factor < breaks_at <= found.broken.factor
    assert found.broken.factor / found.most.factor < 1.03
    factors = [row.factor for row in found.rows]
    assert factors == sorted(factors)
    assert len(heard) == len(factors) <= 18


def test_a_load_that_only_a_long_run_loses_is_not_held() -> None:
    asked = replace(study(7), long_breaks_at=5)
    (found,) = asked.held([DEPLOYMENT])
    assert found.most is not None
    assert found.broken is not None
    assert 4.5 < found.most.factor < 5 <= found.broken.factor < 5.5
    (never,) = replace(study(7), long_breaks_at=0).held([DEPLOYMENT])
    assert never.most is None


def test_what_never_holds_and_what_never_breaks() -> None:
    (never,) = study(0).held([DEPLOYMENT])
    assert (never.most, never.broken) == (None, never.rows[0])
    (always,) = study(1e9).held([DEPLOYMENT])
    assert always.broken is None
    assert always.most == always.rows[-1]


def test_a_deployment_is_searched_by_itself() -> None:
    other = replace(DEPLOYMENT, name="other")
    first, second = study(5).held([DEPLOYMENT, other])
    assert [h.rows[0].replayable.name for h in (first, second)] == [DEPLOYMENT.name, "other"]


def test_a_faster_workload_lasts_as_long() -> None:
    loaded = find_workload("short-chat")
    assert sped_up(loaded, 4).workload.requests == 2000
    assert sped_up(loaded, 100).workload.requests == 4000
    assert sped_up(loaded, 0.5).workload.requests == 500
    assert sped_up(loaded, 4, 5).workload.requests == 10_000
    assert sped_up(loaded, 100, 100).workload.requests == 20_000
    users = loaded.workload.model_copy(update={"arrival": Arrival(concurrency=100)})
    assert sped_up(replace(loaded, workload=users), 10).workload.requests == 8000
    arrival = sped_up(loaded, 4).workload.arrival
    assert arrival is not None
    assert arrival.poisson == 16
