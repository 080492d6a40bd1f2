"""The data of the charts in a plan's report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.graph.slo import Slo
from penstock.plan.charts import cost_chart, pareto_chart, sensitivity_chart
from penstock.plan.evidence import replayed
from penstock.reports.model import Chart
from penstock.reports.plotly import figure
from penstock.simulate.study import Row
from tests.plan.simulated_study import aggregated, disaggregated, request
from tests.plan.test_evidence import row, trial

pytestmark = pytest.mark.slow  # renders a graph

CHOICE = aggregated(1)


def traces(chart: Chart) -> dict[str, tuple[list[float], list[float]]]:
    return {trace["name"]: (trace["x"], trace["y"]) for trace in figure(chart)["data"]}


def test_the_pareto_plot_separates_kinds_and_verdicts_and_rings_the_choice() -> None:
    choice = trial(CHOICE, 100, 3000)
    measured = [
        choice,
        trial(disaggregated(1, 1), 200, 1500),
        trial(disaggregated(1, 2), 50, 4000, meets_slo=False),
    ]
    asked = request(slo=Slo(ttft_ms=500, itl_ms=8))
    chart = pareto_chart(replayed(measured, asked, 0.95, choice), "recommended graph")
    assert traces(chart) == {
        "Pareto front": ([100, 200], [3000, 1500]),
        "aggregated, meets the SLO": ([100], [3000]),
        "disaggregated, meets the SLO": ([200], [1500]),
        "disaggregated, misses the SLO": ([50], [4000]),
        "recommended graph": ([100], [3000]),
        "SLO: 125 tokens/s/user (ITL 8 ms)": ([125, 125], [0, pytest.approx(4400)]),
    }
    symbols = {series.name: series.symbols for series in chart.series}
    assert symbols["disaggregated, meets the SLO"] == ["square"]
    assert symbols["disaggregated, misses the SLO"] == ["square-open"]
    assert symbols["aggregated, meets the SLO"] == ["circle"]


@pytest.mark.parametrize(
    ("slo", "part", "limit", "took"),
    [
        (Slo(ttft_ms=60, itl_ms=100), "TTFT", 60, 50),
        (Slo(ttft_ms=600, itl_ms=10.5), "ITL", 10.5, 10),
        (Slo(e2e_ms=500), "end-to-end latency", 500, 150),
    ],
)
@pytest.mark.parametrize(("price", "unit", "cost"), [(None, "GPU-seconds", 1000), (3.6, "cost", 1)])
def test_the_cost_is_shown_against_the_part_of_the_slo_with_the_least_headroom(
    slo: Slo, part: str, limit: float, took: float, price: float | None, unit: str, cost: float
) -> None:
    choice = trial(CHOICE, gpu_rate=1000)
    asked = request(slo=slo, gpu_hour_price=price)
    chart = cost_chart(replayed([choice], asked, 0.95, choice), "recommended graph")
    assert (chart.x.title, chart.x.unit) == (f"{part} p95", "ms")
    assert chart.y.unit == f"{unit} per million tokens"
    found = traces(chart)
    assert found[f"SLO: {part} ≤ {limit} ms"][0] == [limit, limit]
    assert found["recommended graph"] == ([pytest.approx(took)], [pytest.approx(cost)])


ROWS: dict[str, Row | str] = {"planned traffic": row(), "input length × 2": "too long"}


def test_the_sensitivity_plot_leaves_out_what_was_not_replayed() -> None:
    worse = replace(row(), metrics=(replace(row().metrics[0], goodput=0.5),))
    found = replayed([trial(CHOICE)], request(), 0.95, trial(CHOICE))
    chart = sensitivity_chart({**ROWS, "scale × 1.5": worse}, found)
    assert chart.y.names == ["planned traffic", "scale × 1.5"]
    assert traces(chart) == {
        "meets the SLO": ([100], [0]),
        "misses the SLO": ([50], [1]),
        "95% needed": ([95, 95], [-0.5, 1.5]),
    }


def test_with_confidence_a_bar_has_the_color_of_the_verdict_and_not_of_the_share() -> None:
    asked = request(confidence=0.9, slo=Slo(itl_ms=10.1))  # ITL is 10 ms, the interval is wider
    found = replayed([trial(CHOICE)], asked, 0.95, trial(CHOICE))
    assert traces(sensitivity_chart(ROWS, found))["misses the SLO"] == ([100], [0])
