"""What a chart shows of many samples, and what a report states about its origin."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import pytest

from penstock.reports.charts import (
    MOST_NAMES,
    bin_width,
    binned,
    distribution,
    nearest_rank,
    quantiles,
)
from penstock.reports.provenance import machine, provenance


def test_few_samples_are_all_in_a_distribution() -> None:
    assert quantiles([3.0, 5.0]) == ([3.0, 3.0, 5.0], [0.0, 0.5, 1.0])


def test_of_many_samples_the_highest_are_all_in_a_distribution() -> None:
    values, shares = quantiles([float(number) for number in range(1, 10_001)])
    assert len(values) <= 401
    assert values[-20:] == [float(number) for number in range(9_981, 10_001)]
    assert values[1:] == pytest.approx([10_000 * share for share in shares[1:]])


@pytest.mark.parametrize(
    ("seconds", "width"), [(1, 0.1), (60, 1), (61, 2), (240, 5), (600, 10), (7000, 200)]
)
def test_the_bins_of_a_run_are_at_most_60(seconds: float, width: float) -> None:
    assert bin_width(seconds) == pytest.approx(width)
    assert seconds / bin_width(seconds) <= 60.001


def test_a_time_after_the_last_bin_counts_in_it() -> None:
    assert binned([0.0, 0.9, 2.0], [1, 2, 3], 1.0, 2) == [[1, 2], [3]]


def test_percentiles_are_those_of_the_table() -> None:
    assert nearest_rank([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert nearest_rank([7.0], 0.99) == 7.0


def test_a_distribution_marks_its_percentiles_and_the_slo() -> None:
    samples = {"a": [float(number) for number in range(100, 0, -1)], "empty": []}
    chart = distribution("TTFT", samples, 80.0)
    assert chart is not None
    curve, marks = chart.series
    assert (curve.x[0], curve.x[-1]) == (1, 100)
    assert marks.x == [50, 90, 99]
    (limit,) = chart.limits
    assert (limit.name, limit.at, limit.is_vertical) == ("SLO: TTFT ≤ 80 ms", 80, True)
    assert distribution("TTFT", {"empty": []}, 80.0) is None


def test_many_graphs_have_a_row_each_instead_of_a_line() -> None:
    samples = {f"graph {number}": [1.0, 2.0] for number in range(MOST_NAMES + 1)}
    chart = distribution("TTFT", samples, None)
    assert chart is not None
    assert [series.name for series in chart.series] == ["p50", "p90", "p99"]
    assert chart.y.names == list(samples)


def test_the_provenance_names_files_by_their_hash_and_no_secret(tmp_path: Path) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text("a: 1\n")
    command = "penstock bench http://user:secret@example.com"
    facts = dict(provenance(command, files=[graph, tmp_path / "none"], versions={"AIPerf": "1"}))
    assert facts["command"] == "penstock bench http://example.com"
    assert facts[f"SHA-256 of {graph}"] == hashlib.sha256(b"a: 1\n").hexdigest()
    assert f"SHA-256 of {tmp_path / 'none'}" not in facts
    assert "AIPerf 1" in facts["versions"]
    assert platform.node() not in " ".join(facts.values())
    assert "CPUs" in machine()
