"""`make unit` is the quick tests without programs, servers and environments."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.markers import NOT_UNIT, SERVERS, foreign_programs, started_program

ROOT = Path(__file__).parents[1]


def test_make_unit_deselects_every_marker_of_the_project() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    declared = {line.split(":")[0] for line in options["markers"]}
    unit = re.search(
        r"^unit:.*\n.*-m \"not \((.*)\)\"", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert unit is not None
    assert set(unit[1].split(" or ")) == NOT_UNIT == declared
    assert SERVERS <= NOT_UNIT


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
