"""The prediction of `simulate` next to a measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench.measurement import Prediction, predicted
from penstock.bench.report import report_of
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.replayable import replayable
from penstock.workload import find_workload
from tests.bench.measured_runs import BENCH, LATENCIES
from tests.reports.read import text_of

GRAPH = Path("dynamo_graphs/gpt-oss-120b-h100-latency.yaml")
PREDICTION = Prediction(
    graph="a-graph", requests=100, too_long=0, ttft_ms=LATENCIES, itl_ms=None, e2e_ms=LATENCIES
)


def test_the_measured_percentiles_are_compared_with_the_predicted_ones() -> None:
    half = replace(LATENCIES, p50=LATENCIES.p50 / 2, p99=None)
    text = text_of(
        report_of(replace(BENCH, prediction=replace(PREDICTION, ttft_ms=half)))
    ).splitlines()
    start = text.index("predicted by simulate for a-graph (measured compared with predicted):")
    rows = [line.split() for line in text[start + 2 : start + 5]]
    assert rows[0] == ["TTFT", "10.0", "(+100%)", "30.0", "(+0%)", "-"]
    assert rows[1] == ["ITL", "-", "-", "-"]
    assert rows[2][:3] == ["end-to-end", "20.0", "(+0%)"]
    assert not any("too long" in line for line in text)


def test_requests_that_the_graph_rejects_are_named() -> None:
    text = text_of(
        report_of(replace(BENCH, prediction=replace(PREDICTION, too_long=40)))
    ).splitlines()
    rejected = "the prediction is without 40 of 100 requests, which are too long for this graph"
    assert rejected in text


@pytest.mark.needs("sim")
def test_a_prediction_counts_the_requests_that_the_graph_rejects() -> None:
    workload = find_workload("short-chat").with_requests(40)
    with Replays(Cache(None, "")) as replays:
        predictions = [
            predicted(
                replayable(open_source(GRAPH, sets), Hints()), workload, 0, replays
            ).prediction
            for sets in ((), ("model.context_length=2048",))
        ]
    assert [each.requests for each in predictions] == [40, 40]
    assert predictions[0].too_long == 0
    assert 0 < predictions[1].too_long < 40
    assert predictions[1].ttft_ms is not None
    assert predictions[1].ttft_ms.p99 is None
