"""A pytest plugin that records the lines of the package that each test executes, and its seconds.

.ci/mutants.py starts it with `-p executed_lines`, in Python 3.12 or later: `sys.monitoring` reports
a line once per test, so that a recorded run is hardly slower. Lines that child processes execute
are not recorded. Environment variables: LINES_OUT, the folder to write to; LINES_OF, the folder of
the package; TESTS_ONLY, a file with the ids of the only tests to run, quick files first.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import types
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

IS_RECORDED = "LINES_OUT" in os.environ and "PYTEST_XDIST_WORKER" in os.environ
PACKAGE = os.environ.get("LINES_OF", "")
SERVERS = frozenset({"servers", "engines"})  # groups of tests
OUTSIDE = frozenset({"cluster", "e2e", "long", "nightly"})  # "long" in older checkouts
_ids: dict[tuple[str, int], int] = {}
_tests: list[tuple[str, float, bool, array[int]]] = []  # id, seconds, has passed, ids of lines
_current: set[tuple[str, int]] = set()


def pytest_configure() -> None:
    if not IS_RECORDED:
        return
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "penstock lines")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, _executed)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)


def _executed(code: types.CodeType, line: int) -> Any:
    if code.co_filename.startswith(PACKAGE):
        _current.add((code.co_filename, line))
    return sys.monitoring.DISABLE  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    if IS_RECORDED:
        _current.clear()
        sys.monitoring.restart_events()  # type: ignore[attr-defined]
    return (yield)


_seconds: dict[str, float] = {}
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not IS_RECORDED:
        return
    test = report.nodeid
    if test.rfind("@") > test.rfind("]"):  # tests/conftest.py adds the test's group
        test = test.rpartition("@")[0]
    _seconds[test] = _seconds.get(test, 0.0) + report.duration
    if not report.passed:
        _failed.add(test)
    if report.when == "teardown":
        lines = array("I", (_ids.setdefault(place, len(_ids)) for place in _current))
        _tests.append((test, _seconds.pop(test), test not in _failed, lines))


def pytest_sessionfinish() -> None:
    if _tests:
        places = [(file.removeprefix(PACKAGE), line) for file, line in _ids]
        content = zlib.compress(pickle.dumps((places, _tests)))
        (Path(os.environ["LINES_OUT"]) / f"{os.getpid()}.pickle.z").write_bytes(content)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is not in CI, and the tests whose servers and child processes do the work."""
    items[:] = [i for i in items if not OUTSIDE.intersection(m.name for m in i.iter_markers())]
    groups = {item: item.get_closest_marker("xdist_group") for item in items}
    items[:] = [i for i in items if (g := groups[i]) is None or g.args[0] not in SERVERS]
    chosen = os.environ.get("TESTS_ONLY")
    if chosen:
        order = {test: i for i, test in enumerate(json.loads(Path(chosen).read_text()))}
        items[:] = sorted(
            (i for i in items if i.nodeid in order), key=lambda item: order[item.nodeid]
        )
