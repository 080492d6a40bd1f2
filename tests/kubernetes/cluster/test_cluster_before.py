"""The functions of `benchmarks/cluster_before.py`, which runs today's tests on older code."""

from __future__ import annotations

import json
from pathlib import Path

import cluster_before

TEST = f"{cluster_before.CLUSTER}/test_reverts.py::test_2_a_revert_keeps_every_pool[apply]"


def test_a_rejection_fails_if_one_of_its_tests_does() -> None:
    tests = {
        "test_rejections.py::test_a[409: x]": {"outcome": "passed"},
        "test_rejections.py::test_b[409: x]": {"outcome": "failed", "kind": "outcome"},
        "test_rejections.py::test_b[429: y]": {"outcome": "passed"},
        "test_rejections.py::test_c": {"outcome": "passed"},
    }
    stored = {"rejections": {"before": {"code": "", "tests": tests}}}
    counted = cluster_before.summary(stored)["rejections"]
    assert counted == {"before": {"all": 2, "failing": 1, "passing": ["429: y"]}}


def test_the_stored_result_is_of_all_parts() -> None:
    file = Path(cluster_before.RESULTS) / f"{cluster_before.NAME}.json"
    stored = json.loads(file.read_text())
    assert stored["commits"]["before"] == cluster_before.BEFORE
    assert stored["parts"].keys() == cluster_before.PARTS.keys()
    for sides in stored["parts"].values():
        assert {r["outcome"] for r in sides["now"]["tests"].values()} == {"passed"}
