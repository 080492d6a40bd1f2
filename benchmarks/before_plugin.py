"""pytest plugin of cluster_before.py: today's tests on a package from before issue 17.

What a test imports from a module that the package lacks is replaced by a placeholder, whose use is
reported as not comparable. One line of JSON per test goes to the file of PENSTOCK_BEFORE_REPORT.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
import types
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

_is_running: list[bool] = []  # not empty once the tests are collected


class NotComparableError(Exception):
    """The test uses a part of the package that did not exist."""


class Placeholder:
    """Stands for a name that the package lacks; raises an error when a test uses it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _use(self, *_: object, **__: object) -> Placeholder:
        if _is_running:
            raise NotComparableError(self._name)
        return Placeholder(self._name)

    __call__ = __getitem__ = _use

    def __iter__(self) -> Iterator[Placeholder]:
        yield self._use()

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self._name}.{name}")


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")


def imported(source: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that the source imports from penstock."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock"):
            yield from ((node.module or "", each.name) for each in node.names)


def provide_missing(sources: Iterable[str]) -> list[str]:
    """Replace what the sources import and the package lacks by placeholders; returns the names."""
    made = []
    for module, name in sorted({found for source in sources for found in imported(source)}):
        try:
            parent: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            parent = sys.modules[module] = _Module(module)
            made.append(module)
        if hasattr(parent, name):
            continue
        try:
            importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError:
            setattr(parent, name, Placeholder(f"{module}.{name}"))
            made.append(f"{module}.{name}")
    return made


def kind_of(error: BaseException, statement: str) -> str:
    """How a test failed: `not comparable`, `message` (the text of the output), or `outcome`."""
    if isinstance(error, NotComparableError):
        return "not comparable"
    if not isinstance(error, AssertionError):
        text = str(error)
        is_interface = isinstance(error, AttributeError | TypeError | ImportError)
        return "not comparable" if is_interface and "penstock" in text else "outcome"
    is_text = " in output" in statement or ".count(" in statement or " in failing(" in statement
    return "message" if is_text else "outcome"


def first_line(error: BaseException) -> str:
    """The error that the test shows, in one line: that of penstock if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    of_penstock = [line for line in lines if line.startswith("penstock ")]
    return (of_penstock or lines or [type(error).__name__])[0][:300]


def pytest_configure() -> None:
    folder = Path.cwd() / "tests"
    files = [*(folder / "kubernetes" / "cluster").glob("*.py"), *(folder / "support").rglob("*.py")]
    provide_missing(file.read_text() for file in files)


def pytest_collection_finish() -> None:
    _is_running.append(True)


@pytest.fixture(autouse=True)
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant that a test shortens and the package lacks is no difference in behavior."""
    original = monkeypatch.setattr

    def setattr_(target: Any, name: Any, *value: Any, **options: Any) -> None:
        is_ours = isinstance(target, types.ModuleType) and target.__name__.startswith("penstock")
        original(target, name, *value, **({"raising": False} if is_ours else options))

    monkeypatch.setattr = setattr_  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.outcome == "passed" and report.when != "call":
        return report
    entry: dict[str, Any] = {"outcome": report.outcome, "seconds": round(call.duration, 1)}
    if report.failed and call.excinfo:
        own = [e for e in call.excinfo.traceback if "/tests/" in str(e.path)]
        statement = str(own[-1].statement) if own else ""
        entry["kind"] = kind_of(call.excinfo.value, statement)
        entry["assertion"] = " ".join(statement.split())[:200]
        entry["error"] = first_line(call.excinfo.value)
    with Path(os.environ["PENSTOCK_BEFORE_REPORT"]).open("a") as file:
        file.write(json.dumps({"test": item.nodeid, **entry}) + "\n")
    return report
