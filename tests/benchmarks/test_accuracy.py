"""The accuracy report: the package has its points, and the documents have its figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import accuracy
import accuracy_report
from measured import FIT, HELD_OUT
from point_graphs import reason_against, workload_of

ROOT = Path(__file__).parents[2]
ERRORS = accuracy.point_errors()
RESULT = json.loads((ROOT / "benchmarks" / "results" / "accuracy.json").read_text())


def test_the_points_in_the_package_are_those_of_the_predictions() -> None:
    assert accuracy.report(check=True) == 0


@pytest.mark.slow
def test_the_result_file_is_that_of_the_predictions() -> None:
    found = json.loads(json.dumps(accuracy_report.figures(ERRORS)))
    assert {key: RESULT[key] for key in found} == found


def test_held_out_points_have_intervals_from_the_fitting_half_only() -> None:
    half = {FIT: [e for e in ERRORS if e.point["split"] == FIT], HELD_OUT: []}
    groups = {e.conditions.group for e in half[FIT] if e.kind == "steady"}
    held_out = [e for e in ERRORS if e.point["split"] == HELD_OUT and e.kind == "steady"]
    possible = [e for e in held_out if e.conditions.group in groups and "rate" in e.ratios]
    summary = RESULT["held-out"]["steady"]["all"]["all"]["rate"]
    assert summary["points"] == len([e for e in held_out if "rate" in e.ratios])
    assert 0 < summary["with interval"] <= len(possible)


def test_bursts_and_unstated_configurations_make_no_intervals() -> None:
    sources = {row["source"] for row in json.loads(accuracy_report.as_data(ERRORS, []))["points"]}
    assert sources
    assert not sources & {"aiconfigurator", "nebius-soperator"}


def test_a_closed_loop_is_replayed_with_the_lengths_of_the_source() -> None:
    error = next(e for e in ERRORS if e.point["length_spread"] == "0.8-1.0")
    workload = workload_of(error.point)
    assert workload.input is not None
    assert workload.input.mean == round(0.9 * float(error.point["isl"]))
    assert workload.input.max == float(error.point["isl"])
    assert workload.arrival is not None
    assert workload.arrival.concurrency == int(error.point["concurrency"])


def test_points_that_the_replay_cannot_describe_are_not_replayed() -> None:
    point = dict(ERRORS[0].point)
    assert reason_against(point) == ""
    assert reason_against({**point, "mode": "disaggregated"}) == "disaggregated"
    assert reason_against({**point, "speculative": "mtp"}) == "speculative decoding"
    assert reason_against({**point, "precision": "int8"}) == "no configuration of the checkpoint"


def test_the_page_has_the_measured_errors() -> None:
    """In rows such as `| trtllm b200 | 20% (54 points) | 14% (105 points) | 94%, ±18% | …`."""
    text = (ROOT / "docs" / "accuracy.md").read_text()
    rows = re.findall(r"^\| ((?:trtllm|vllm) \w+) \|(.+)\|$", text, re.MULTILINE)
    assert len(rows) == 5
    for group, cells in rows:
        found = [cell.strip() for cell in cells.split("|")]
        assert found == expected(group), group


def expected(group: str) -> list[str]:
    """Held-out errors of ITL and throughput, then the intervals from all other points."""
    held_out: dict[str, Any] = RESULT["held-out"]["steady"]["engine and GPU"][group]
    everything: dict[str, Any] = RESULT["by all other points"]["engine and GPU"][group]
    errors = [held_out[metric] for metric in ("itl", "rate")]
    made = [everything[metric] for metric in ("itl", "rate")]
    return [
        *(f"{one['error']:.0%} ({one['points']} points)" for one in errors),
        *(f"{one['covered']:.0%}, ±{one['half width']:.0%}" for one in made),
    ]
