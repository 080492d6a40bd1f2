"""`make unit` is the quick tests without programs and servers; what tests need is declared."""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import needs
from tests.support.markers import (
    ENGINE_NEEDS,
    NOT_UNIT,
    SERVER_NEEDS,
    SERVERS,
    foreign_programs,
    started_program,
)

ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
ENVOY = "needs envoy. To run: uv run penstock tools env install envoy"


def test_make_unit_deselects_every_marker_of_the_project() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    declared = {line.split(":")[0] for line in options["markers"]}
    unit = re.search(
        r"^unit:.*\n.*-m \"not \((.*)\)\"", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert unit is not None
    assert set(unit[1].split(" or ")) == NOT_UNIT
    assert declared == NOT_UNIT | {"destroys_graph"}  # tests of e2e
    assert SERVERS <= NOT_UNIT
    assert needs.NEEDS.keys() >= SERVER_NEEDS | ENGINE_NEEDS


def test_a_test_skips_only_for_what_cannot_be_declared() -> None:
    """tests/conftest.py skips for the rest."""
    files = set(TESTS.rglob("*.py")) - {TESTS / "conftest.py"}
    assert {reason for file in files for reason in reasons(file)} == set(needs.UNDECLARABLE)


def reasons(file: Path) -> Iterator[str]:
    """Of `pytest.skip`, `skipif` and `importorskip`: their last argument."""
    text = file.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if "skip" in text else ():
        if isinstance(node, ast.Call) and re.search(r"skip(if)?$", ast.unparse(node.func)):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            yield str(ast.literal_eval(arguments[-1]))


@needs.needed_by_its_tests("envoy")
def fixture() -> None:
    """As a fixture that needs Envoy."""


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (["envoy"], ""),
        (["sim"], 'mark the test with needs("envoy"): its fixtures need that'),
        (["envoi", "envoy"], "unknown needs: envoi. Use one of "),
    ],
)
def test_a_test_names_what_its_fixtures_need(declared: list[str], expected: str) -> None:
    problem = needs.problem(declared, [fixture, print])
    assert problem.startswith(expected)
    assert bool(problem) == bool(expected)


def test_skips_are_declared_or_in_the_table() -> None:
    assert needs.is_declared(ENVOY)
    assert needs.is_declared("KUBECONFIG is not set")
    assert not needs.is_declared("not today")


def test_the_summary_says_how_to_run_what_was_skipped() -> None:
    reasons = {f"reason {number:02}": 20 - number for number in range(12)}
    assert needs.summary({**reasons, ENVOY: 2}) == [
        f"2 skipped: {ENVOY}",
        *(f"{count} skipped: {reason}" for reason, count in [*reasons.items()][:10]),
        "19 skipped for other reasons",
    ]


@pytest.mark.parametrize(
    ("event", "arguments", "program"),
    [
        ("subprocess.Popen", ("bash", ["bash", "-c", ":"], None, None), "bash"),
        ("subprocess.Popen", (None, ["git", "log"], None, None), "git"),
        ("os.system", ("true",), "true"),
        ("open", ("file", "r", 0), None),
    ],
)
def test_a_started_program_is_read_from_the_audit_event(
    event: str, arguments: tuple[object, ...], program: str | None
) -> None:
    assert started_program(event, arguments) == program


@pytest.mark.xdist_group("example")
def test_workers_see_the_group_of_a_test_in_its_id(request: pytest.FixtureRequest) -> None:
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    assert request.node.nodeid.endswith("@example") == is_worker


def test_only_python_and_penstock_are_own_programs() -> None:
    assert foreign_programs([sys.executable, "/bin/sh"]) == ["/bin/sh"]
