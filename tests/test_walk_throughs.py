"""docs/architecture.md fits two screens, and names what exists, what runs and every package."""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock.cli.main import main

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "components" / "src" / "penstock"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
HEADING = re.compile(r"^## The flow of `penstock (\w+)`$", re.MULTILINE)
# Two screens of 50 lines, and the heading.
MOST_LINES = 110


@contextmanager
def called_modules() -> Iterator[set[str]]:
    """The modules of penstock whose functions are called, as paths below the package."""
    modules: set[str] = set()

    def record(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # Not the bodies of modules, classes and comprehensions, which run at import too.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(str(PACKAGE)):
            modules.add(str(Path(code.co_filename).relative_to(PACKAGE)))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        yield modules
    finally:
        sys.setprofile(before)


def flow_of(command: str) -> str:
    return PAGE.partition(f"## The flow of `penstock {command}`\n")[2].partition("\n## ")[0]


def named_modules(text: str) -> set[str]:
    return set(re.findall(r"`((?:\w+/)*\w+\.py)`", text))


def named_packages(text: str) -> set[str]:
    """The first folders, and modules, of what the text names in backticks."""
    names = re.findall(r"`(\w+(?:\.py)?)(?:/[\w./]+)?`", text)
    return {name for name in names if (PACKAGE / name).exists()}


def test_the_page_fits_two_screens() -> None:
    assert len(PAGE.splitlines()) <= MOST_LINES


def test_every_named_module_exists() -> None:
    assert len(named_modules(PAGE)) > 30
    assert [name for name in sorted(named_modules(PAGE)) if not (PACKAGE / name).is_file()] == []


def test_the_table_has_the_packages_in_the_order_that_import_linter_checks() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    rows = re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE)
    floors = {
        name.strip().removeprefix("penstock."): floor
        for floor, names in enumerate(layers)
        for name in names.split("|")
    }
    listed = [row.removesuffix(".py") for row in rows]
    assert sorted(listed) == sorted(floors)
    assert [floors[name] for name in listed] == sorted(floors.values())
    existing = {p.stem for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}
    existing |= {p.stem for p in PACKAGE.glob("*.py") if p.stem != "__init__"}
    assert existing == set(listed)


def test_the_commands_with_a_flow() -> None:
    assert HEADING.findall(PAGE) == ["check", "up", "apply", "plan", "simulate"]


@pytest.mark.slow
def test_the_flow_of_check_names_the_modules_and_packages_that_it_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = ROOT / "dynamo_graphs" / "gpt-oss-120b-b200-disagg.yaml"
    with called_modules() as called:
        assert main(["check", str(graph)]) == 0
    assert "1 file: 0 errors" in capsys.readouterr().out
    flow = flow_of("check")
    assert named_modules(flow) - called <= {"graph/model.py"}  # declarations, without functions
    packages = {name.partition("/")[0] for name in called}
    # Where the chart is, and errors that are made and not raised.
    assert packages - named_packages(flow) <= {"files.py", "errors.py"}
