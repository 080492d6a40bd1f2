"""Whether the SLO is met up to the upper end of the prediction intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan import margin
from penstock.plan.margin import Margin, margin_line, margins
from penstock.plan.space import allowed
from penstock.plan.trials import TrialSpec
from penstock.simulate.interval import Interval
from penstock.simulate.study import Row
from tests.plan.simulated_study import (
    TAKES_MS,
    Behavior,
    aggregated,
    disaggregated,
    request,
    trials,
)
from tests.plan.test_report import document_of, planned, printed_lines

CANDIDATE = aggregated(2)


def measured(monkeypatch: pytest.MonkeyPatch, **high: float) -> None:
    """Intervals up to ``high`` times the prediction."""

    def intervals(row: Row, coverage: float) -> Mapping[str, Interval]:
        return {name: Interval(low=0.9, high=factor, points=12) for name, factor in high.items()}

    monkeypatch.setattr(margin, "row_intervals", intervals)


def row() -> Row:
    (trial,) = trials({CANDIDATE: Behavior(max_scale=2.0)}).of([TrialSpec(CANDIDATE)])
    return trial.row


def test_each_part_of_the_slo_is_widened_by_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, ttft=1.5, itl=1.2)
    slo = Slo(ttft_ms=TAKES_MS * 2, itl_ms=1000.0, e2e_ms=100000.0)
    by_name = {margin.name: margin for margin in margins(row(), slo, 0.95)}
    assert by_name["TTFT"].highest == pytest.approx(by_name["TTFT"].predicted * 1.5)
    assert by_name["ITL"].highest == pytest.approx(by_name["ITL"].predicted * 1.2)
    latency = by_name["end-to-end latency"]
    # 50 ms until the first token, and 100 ms after it.
    assert latency.predicted == pytest.approx(150)
    assert latency.highest == pytest.approx(50 * 1.5 + 100 * 1.2)
    assert all(part.is_met for part in by_name.values())


def test_a_part_without_measured_points_is_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, itl=1.0)
    (only,) = margins(row(), Slo(ttft_ms=TAKES_MS * 100), 0.95)
    assert only.highest is None
    assert not only.is_met
    line = margin_line(row(), [only])
    assert line == "not known: too few measured points of TTFT at such a load"
    measured(monkeypatch)
    assert margin_line(row(), [only]).startswith("not known: no measured point for ")


def test_the_line_names_what_may_miss_the_slo(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, ttft=2.0, itl=1.2)
    met = Margin(name="TTFT", limit=500.0, predicted=44.0, highest=88.0)
    missed = Margin(name="ITL", limit=8.0, predicted=7.438, highest=8.876)
    assert margin_line(row(), [met, missed]) == (
        "ITL up to 8.876 ms of 8 ms: the SLO may be missed within the 90% interval"
    )
    assert margin_line(row(), [met], 0.8) == (
        "TTFT up to 88 ms of 500 ms: the SLO is met within the 80% interval"
    )


@pytest.mark.parametrize("known", ["ttft", "itl"])
def test_the_end_to_end_latency_needs_both_intervals(
    monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    measured(monkeypatch, **{known: 1.1})
    (only,) = margins(row(), Slo(e2e_ms=9000), 0.95)
    assert only.predicted == pytest.approx(150)
    assert only.highest is None
    missing = {"ttft": "ITL", "itl": "TTFT"}[known]
    line = margin_line(row(), [only])
    assert line == f"not known: too few measured points of {missing} at such a load"


def test_the_upper_end_of_a_wide_interval_is_printed_only_with_confidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interval itself is printed as not known."""
    measured(monkeypatch, ttft=3.0, itl=1.2)  # from 0.9
    ttft = Margin(name="TTFT", limit=500.0, predicted=44.0, highest=132.0)
    itl = Margin(name="ITL", limit=8.0, predicted=6.0, highest=7.2)
    unknown = "not known: the 90% interval of TTFT is wider than a factor of 3"
    assert margin_line(row(), [ttft, itl]) == unknown
    assert margin_line(row(), [itl]).startswith("ITL up to 7.2 ms of 8 ms: the SLO is met")
    assert margin_line(row(), [ttft, itl.model_copy(update={"limit": 7.0})]).startswith(
        "ITL up to 7.2 ms of 7"
    )
    assert margin_line(row(), [ttft], 0.9).startswith("TTFT up to 132 ms of 500 ms")


def test_long_latencies_are_written_without_an_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, ttft=1.2, itl=1.2)
    long = Margin(name="end-to-end latency", limit=9000.0, predicted=7923.0, highest=28750.4)
    assert margin_line(row(), [long]).startswith("end-to-end latency up to 28750 ms of 9000 ms: ")


@pytest.mark.parametrize(("high", "meets_slo"), [(1.01, True), (1.5, False)])
def test_with_confidence_a_graph_must_meet_the_slo_with_its_margin(
    monkeypatch: pytest.MonkeyPatch, high: float, meets_slo: bool
) -> None:
    measured(monkeypatch, ttft=high, itl=high)
    search = trials({CANDIDATE: Behavior(max_scale=2.0)})
    (without,) = search.of([TrialSpec(CANDIDATE)])
    assert without.meets_slo
    search = trials({CANDIDATE: Behavior(max_scale=2.0)})
    search.deployments.request = request(confidence=0.9)
    (trial,) = search.of([TrialSpec(CANDIDATE)])
    assert trial.meets_slo is meets_slo


@pytest.mark.slow  # renders a graph
@pytest.mark.parametrize(("high", "how"), [(1.2, "also"), (1.5, "but not")])
def test_with_confidence_every_line_counts_the_intervals(
    monkeypatch: pytest.MonkeyPatch, high: float, how: str
) -> None:
    """TTFT is 50 ms, so that the prediction meets the SLO in both cases."""
    measured(monkeypatch, ttft=high, itl=high)
    plan = planned()
    plan = replace(
        plan,
        request=request(confidence=0.9, slo=Slo(ttft_ms=70)),
        sensitivity_rows={"scale × 1.5": plan.winner.row},
        losses={"aggregated": plan.winner.row},
    )
    printed = printed_lines(plan)
    upper = "at the upper end of the 90% intervals"
    verdict = f"100.0% of requests meet the SLO, {how} {upper}"
    assert any(line.startswith(f"sensitivity, scale × 1.5: {verdict}") for line in printed)
    lost = f"availability: with one worker fewer: {verdict}"
    assert any(line.startswith(lost) for line in printed)
    left = f"{1 - 50 * high / 70:.0%} left"
    assert f"headroom: {upper}: TTFT p95 {50 * high:g} ms of 70 ms ({left})" in printed
    content = document_of(plan)
    assert content["sensitivity"]["scale × 1.5"]["meets_slo"] is (how == "also")
    assert content["after_loss"]["aggregated"]["meets_slo"] is (how == "also")


def test_with_confidence_disaggregated_graphs_are_left_out() -> None:
    both = [aggregated(2), disaggregated(1, 1)]
    assert allowed(both, request()) == both
    assert allowed(both, request(confidence=0.9)) == [aggregated(2)]
