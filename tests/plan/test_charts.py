"""The data of the charts in a plan's report."""

from __future__ import annotations

import pytest

from penstock.graph.slo import Slo
from penstock.plan.charts import cost_chart, pareto_chart
from penstock.plan.evidence import replayed
from penstock.reports.model import Chart
from penstock.reports.plotly import figure
from tests.plan.simulated_study import aggregated, disaggregated, request
from tests.plan.test_evidence import trial

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
