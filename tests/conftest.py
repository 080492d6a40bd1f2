"""Options of the test run, tests that this machine cannot run, and how xdist groups the tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from hypothesis import settings

from tests.support import needs, renders, replays, tls_roots
from tests.support.markers import (
    ENGINE_NEEDS,
    LONG_GROUPS,
    PROGRAMS,
    SERVER_NEEDS,
    SERVERS,
    foreign_programs,
    started_program,
)

TESTS = Path(__file__).parent
# The Helm SDK is a Go library: less garbage collection makes a render
# about a fifth faster (40 instead of 52 ms of CPU time).
os.environ.setdefault("GOGC", "400")
# How many examples a property test tries unless it says so itself; benchmarks/fuzz.py tries those
# of "thorough".
# Each run tries the same examples without a time limit, so that every run has the same result.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=2000)
settings.load_profile("ci")

# The tests allocate much and have few cycles: fewer collections save 6% of their time.
gc.set_threshold(200_000, 50, 100)
renders.install()
tls_roots.install()
# A shell starts background programs with SIGINT ignored, and nohup with SIGHUP. All that the tests
# start would ignore them too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
replays.install()

_started: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden/ instead of comparing"
    )
    parser.addoption(
        "--most-cases", type=int, metavar="N", help="run at most N cases of each parametrized test"
    )
    parser.addoption(
        "--only-declared-skips",
        action="store_true",
        help="fail tests that skip for a reason that is not in tests/support/needs.py",
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run in one process when files or tests are named: starting workers takes seconds."""
    named = {(config.invocation_params.dir / a.split("::")[0]).resolve() for a in config.args}
    is_whole_run = named <= {TESTS, TESTS.parent}
    if not is_whole_run or config.option.collectonly or config.getoption("update_golden"):
        return 0
    return (os.cpu_count() or 1) + 1  # tests with servers wait for most of their time


def pytest_itemcollected(item: pytest.Item) -> None:
    """Group tests for xdist's workers."""
    group = _group(item, {marker.name for marker in item.iter_markers()})
    if group is not None:
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the group of each test in its id, as `--dist loadgroup` reads it there, and begin with
    the groups that take longest.

    pytest-xdist 3.8.0 writes it to `_nodeid`, which pytest 9.2 does not read.
    """
    most = config.getoption("most_cases")
    if most:
        items[:] = _spread(items, most)
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None:
            item._id = NodeId.parse(f"{item.nodeid}@{group.args[0]}")
    items.sort(key=_turn)


def _spread(items: Iterable[pytest.Item], most: int) -> Iterator[pytest.Item]:
    """At most so many cases of each test, evenly spread."""
    for _, cases in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        found = list(cases)
        count = min(most, len(found))
        yield from (found[number * len(found) // count] for number in range(count))


def pytest_collection_finish() -> None:
    """The items live until the end, and pytest collects garbage several times at the end."""
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    if group is None:
        return len(LONG_GROUPS) + 1
    return LONG_GROUPS.index(group.args[0]) if group.args[0] in LONG_GROUPS else len(LONG_GROUPS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what this machine lacks."""
    declared = _needs(item)
    problem = needs.problem(declared, (definition.func for definition in _fixtures(item)))
    if problem:
        pytest.fail(problem, pytrace=False)
    reason = needs.reason(declared)
    if reason:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail skips that are not declared, if the option says so."""
    report = yield
    if report.skipped and item.config.getoption("only_declared_skips"):
        reason = _reason(report)
        if not hasattr(report, "wasxfail") and not needs.is_declared(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped without the marker `needs`: {reason}"
    return report


def pytest_sessionfinish() -> None:
    replays.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the skipped tests need, a line each."""
    skips = Counter(map(_reason, terminalreporter.stats.get("skipped", ())))
    for line in needs.summary(skips):
        terminalreporter.write_line(line)


def _reason(report: pytest.TestReport) -> str:
    """The reason of a skipped test."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ")


def _needs(item: pytest.Item) -> list[str]:
    return [name for marker in item.iter_markers("needs") for name in marker.args]


def _fixtures(item: pytest.Item) -> list[pytest.FixtureDef[object]]:
    """The definitions of the test's fixtures."""
    by_name = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    return [definition for definitions in by_name.values() for definition in definitions]


def _group(item: pytest.Item, markers: set[str]) -> str | None:
    """The tests that one worker runs: all with servers, all with engines or AIPerf, a file that
    shares a fixture."""
    if "xdist_group" in markers:
        return None
    if ENGINE_NEEDS.intersection(_needs(item)):
        return "engines"
    if markers & SERVERS or SERVER_NEEDS.intersection(_needs(item)):
        return "servers"
    shares = any(definition.scope == "module" for definition in _fixtures(item))
    return item.nodeid.split("::")[0] if shares else None


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
