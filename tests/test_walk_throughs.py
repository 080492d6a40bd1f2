"""The walk-throughs of docs/architecture.md name modules that exist, and all that `check` runs."""

from __future__ import annotations

import inspect
import re
import sys
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
NAMED = set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE))
HEADING = re.compile(r"^## Walk-through: .*`penstock (\w+)`$", re.MULTILINE)


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


def test_every_named_module_exists() -> None:
    assert len(NAMED) > 100
    assert [name for name in sorted(NAMED) if not (PACKAGE / name).is_file()] == []


def test_there_is_a_walk_through_for_check_up_apply_and_plan() -> None:
    assert HEADING.findall(PAGE) == ["check", "up", "apply", "plan"]


@pytest.mark.slow
def test_the_first_walk_through_names_every_module_that_check_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = ROOT / "dynamo_graphs" / "gpt-oss-120b-b200-disagg.yaml"
    with called_modules() as modules:
        assert main(["check", str(graph)]) == 0
    assert "1 file: 0 errors" in capsys.readouterr().out
    folders = ("checks/rules/", "manifests/shell/")
    called = {name for name in modules if not name.startswith(folders)}
    unnamed = {name for name in called - NAMED if not name.endswith("__init__.py")}
    assert unnamed == set()
