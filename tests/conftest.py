"""Options of the test run, its markers for environments, and how tests share two CPU cores."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from hypothesis import settings

from penstock.bench import aiperf
from penstock.errors import MissingToolError
from penstock.simulate import replay
from tests.support import renders
from tests.support.markers import PROGRAMS, SERVERS, foreign_programs, started_program

TESTS = Path(__file__).parent
# Markers of tests that need an environment, and what raises an error without it.
ENVIRONMENTS = {"aiperf": aiperf.require_environment, "sim": replay.require_environment}
# The Helm SDK is a Go library: less garbage collection makes a render
# about a fifth faster (40 instead of 52 ms of CPU time).
os.environ.setdefault("GOGC", "400")
# How many examples a property test tries unless it says so itself; `make fuzz` uses "thorough".
# Each run tries the same examples without a time limit, so that every run has the same result.
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=2000)
settings.load_profile("ci")

# The tests allocate much and have few cycles: fewer collections save 6% of their time.
gc.set_threshold(200_000, 50, 100)
renders.install()

_started: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden/ instead of comparing"
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run in one process when files or tests are named: starting workers takes seconds."""
    named = {(config.invocation_params.dir / a.split("::")[0]).resolve() for a in config.args}
    is_whole_run = named <= {TESTS, TESTS.parent}
    if not is_whole_run or config.option.collectonly or config.getoption("update_golden"):
        return 0
    return None  # xdist's own count: one worker per CPU core


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what needs an environment that is missing, and group tests for xdist's workers."""
    markers = {marker.name for marker in item.iter_markers()}
    for name in markers & ENVIRONMENTS.keys():
        item.add_marker(_skip(name))
    group = _group(item, markers)
    if group is not None:
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the group of each test in its id, as `--dist loadgroup` reads it there.

    pytest-xdist 3.8.0 writes it to `_nodeid`, which pytest 9.2 does not read.
    """
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None:
            item._id = NodeId.parse(f"{item.nodeid}@{group.args[0]}")


@cache
def _skip(name: str) -> pytest.MarkDecorator:
    """Skips where the environment is not installed."""
    try:
        ENVIRONMENTS[name]()
    except MissingToolError:
        installed = False
    else:
        installed = True
    reason = f"the environment {name} is not installed: penstock env install {name}"
    return pytest.mark.skipif(not installed, reason=reason)


def _group(item: pytest.Item, markers: set[str]) -> str | None:
    """The tests that one worker runs: all with servers; or a file that shares a fixture."""
    if "xdist_group" in markers:
        return None
    if markers & SERVERS:
        return "servers"
    definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    scopes = {d.scope for found in definitions.values() for d in found}
    own = {d.baseid for found in definitions.values() for d in found if d.scope == "module"}
    return item.nodeid.split("::")[0] if "module" in scopes and own else None


@pytest.fixture(autouse=True)
def only_python_is_started(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test without such a marker fails if it starts a program other than this Python."""
    if {marker.name for marker in request.node.iter_markers()} & PROGRAMS:
        yield
        return
    _started.clear()
    yield
    programs = foreign_programs(_started)
    assert programs == [], f"give this test the marker `program`; it started {programs}"


def _note_program(event: str, arguments: tuple[object, ...]) -> None:
    program = started_program(event, arguments)
    if program is not None:
        _started.append(program)


sys.addaudithook(_note_program)
