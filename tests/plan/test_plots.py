"""The data of the plots on a plan's page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan.evidence import replayed
from penstock.plan.plots import cost_plot, pareto_plot, sensitivity_plot
from penstock.simulate.study import Row
from tests.plan.simulated_study import aggregated, disaggregated, request
from tests.plan.test_evidence import row, trial

pytestmark = pytest.mark.slow  # renders a graph

CHOICE = aggregated(1)


def test_the_pareto_plot_separates_kinds_and_verdicts_and_rings_the_choice() -> None:
    choice = trial(CHOICE, 100, 3000)
    measured = [
        choice,
        trial(disaggregated(1, 1), 200, 1500),
        trial(disaggregated(1, 2), 50, 4000, meets_slo=False),
    ]
    plot = pareto_plot(replayed(measured, request(), 0.95, choice), "recommended graph")
    series = {one["name"]: (one["x"], one["y"]) for one in plot["series"]}
    assert series == {
        "Pareto front": ([100, 200], [3000, 1500]),
        "aggregated, meets the SLO": ([100], [3000]),
        "disaggregated, meets the SLO": ([200], [1500]),
        "disaggregated, misses the SLO": ([50], [4000]),
        "recommended graph": ([100], [3000]),
    }
    styles = {one["name"]: one["style"] for one in plot["series"]}
    met, missed = (styles[f"disaggregated, {verdict} the SLO"] for verdict in ("meets", "misses"))
    assert (met["fillstyle"], missed["fillstyle"]) == ("full", "none")
    assert met["marker"] != styles["aggregated, meets the SLO"]["marker"]


@pytest.mark.parametrize(("price", "unit", "cost"), [(None, "GPU-seconds", 1000), (3.6, "cost", 1)])
def test_the_cost_is_shown_against_the_binding_part_of_the_slo(
    price: float | None, unit: str, cost: float
) -> None:
    choice = trial(CHOICE, gpu_rate=1000)
    asked = request(slo=Slo(ttft_ms=500, itl_ms=11), gpu_hour_price=price)
    plot = cost_plot(replayed([choice], asked, 0.95, choice), "recommended graph")
    assert (plot["x"], plot["y"]) == ("ITL p95 (ms)", f"{unit} per million output tokens")
    assert plot["limit"] == {"name": "SLO: 11 ms", "x": 11}
    (point, _) = plot["series"]
    assert (point["x"], point["y"]) == ([pytest.approx(10)], [pytest.approx(cost)])


def test_the_sensitivity_plot_leaves_out_what_was_not_replayed() -> None:
    worse = replace(row(), metrics=(replace(row().metrics[0], goodput=0.5),))
    rows: dict[str, Row | str] = {
        "planned traffic": row(),
        "input length × 2": "too long",
        "scale × 1.5": worse,
    }
    plot = sensitivity_plot(rows, 0.95)
    (bars,) = plot["series"]
    assert bars["y"] == ["planned traffic", "scale × 1.5"]
    assert bars["x"] == [100, 50]
    assert bars["style"]["color"][0] != bars["style"]["color"][1]
    assert plot["limit"]["x"] == 95
