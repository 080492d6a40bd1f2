"""The functions of `benchmarks/cluster_before.py`, which runs today's tests on older code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import before_plugin
import cluster_before
from before_plugin import NotComparableError, Placeholder, kind_of, provide_missing

TEST = f"{cluster_before.CLUSTER}/test_reverts.py::test_2_a_revert_keeps_every_pool[apply]"


def test_what_the_package_lacks_is_replaced_by_placeholders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = "from penstock.cluster.later import new\nfrom penstock.errors import Later, Problem\n"
    monkeypatch.setattr(before_plugin, "_is_running", [])
    assert provide_missing([source]) == ["penstock.cluster.later", "penstock.errors.Later"]
    errors = sys.modules["penstock.errors"]
    later = errors.__dict__.pop("Later")
    assert isinstance(later, Placeholder)
    assert isinstance(sys.modules.pop("penstock.cluster.later").new, Placeholder)
    assert isinstance(later(1).name, Placeholder)  # while tests are collected
    before_plugin._is_running.append(True)
    with pytest.raises(NotComparableError, match=r"penstock\.errors\.Later"):
        later(1)


def test_an_import_that_is_missing_is_no_failure_of_the_behavior() -> None:
    missing = AttributeError("module 'penstock.cluster.wait' has no attribute 'POLL_S'")
    assert kind_of(NotComparableError("x"), "f()") == "not comparable"
    assert kind_of(missing, "f()") == "not comparable"
    assert kind_of(AssertionError(), "assert code == 0, output") == "outcome"
    assert kind_of(AssertionError(), 'assert "Fix: " in output') == "message"
    assert kind_of(KeyError("x"), "f()") == "outcome"


def test_a_report_is_grouped_and_counted() -> None:
    lines = [
        {"test": TEST, "outcome": "failed", "kind": "outcome", "error": "in /tmp/a1/g.yaml"},
        {"test": f"{TEST}-late", "outcome": "passed"},
        {"test": f"{TEST}-real", "outcome": "skipped"},
    ]
    found = cluster_before.read_report("\n".join(map(json.dumps, lines)))
    assert [r.get("error") for r in found.values()] == ["in g.yaml", None]
    stored = {"items": {"before": {"code": "", "tests": found}}}
    summary = cluster_before.summary(stored)
    assert summary == {"item 2": {"before": {"outcome": 1, "passed": 1}}}


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
