"""Write which release of Dynamo has which modules to run, and the flags of those without an engine.

    uv run python tools/dump_entry_points.py FOLDER > entry_points.json

FOLDER has one folder per wheel of every patch release, such as `ai-dynamo-1.4.2`. None of their
code runs. A module has a release if any patch of it has the module; so absence is certain.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.version import Version

from dump_flag_history import LITERAL
from penstock.engines.releases import RELEASES

GUARD = re.compile(r"""^if __name__ == ["']__main__["']""", re.MULTILINE)
# Where the parser of each module has been, below the package `dynamo`.
PARSERS = {
    # Before 1.0 the planner was `dynamo.planner.planner_sla`.
    "dynamo.planner": (
        *("planner/__main__.py", "planner/planner_sla.py", "planner/utils/planner_argparse.py"),
    ),
    "dynamo.planner.planner_sla": (
        *("planner/planner_sla.py", "planner/utils/planner_argparse.py"),
    ),
    "dynamo.global_planner": ("global_planner/*.py",),
    "dynamo.global_router": ("global_router/*.py",),
    "dynamo.router": ("router/*.py", "common/configuration/**/*.py"),
    "dynamo.thunderagent_router": (
        *("thunderagent_router/*.py", "router/*.py", "common/configuration/**/*.py"),
    ),
    "dynamo.kv_dc_relay": ("kv_dc_relay/*.py",),
    "dynamo.kv_state_agent": ("kv_state_agent/*.py",),
    "dynamo.profiler": ("profiler/__main__.py",),
}


def main(folder: Path) -> None:
    modules: dict[str, list[str]] = {}
    flags: dict[str, dict[str, list[str]]] = {module: {} for module in PARSERS}
    for release in RELEASES:
        wheels = [path / "dynamo" for path in folder.glob("ai-dynamo-*") if _is_of(path, release)]
        if not wheels:
            sys.exit(f"{folder} has no wheel of Dynamo {release}")
        for module in {module for wheel in wheels for module in _runnable(wheel)}:
            modules.setdefault(module, []).append(release)
        for module, paths in PARSERS.items():
            for flag in {flag for wheel in wheels for flag in _flags(wheel, paths)}:
                flags[module].setdefault(flag, []).append(release)
    _write({"modules": modules, **flags})


def _is_of(path: Path, release: str) -> bool:
    version = Version(path.name.removeprefix("ai-dynamo-"))
    return f"{version.major}.{version.minor}" == release


def _runnable(wheel: Path) -> Iterator[str]:
    """The modules that do something if `python -m` runs them."""
    for path in wheel.rglob("*.py"):
        parts = ("dynamo", *path.relative_to(wheel).with_suffix("").parts)
        if parts[-1] == "__main__":
            yield ".".join(parts[:-1])
        elif "tests" not in parts and GUARD.search(path.read_text("utf-8")):
            yield ".".join(parts)


def _flags(wheel: Path, paths: Iterable[str]) -> Iterator[str]:
    for pattern in paths:
        for path in wheel.glob(pattern):
            yield from LITERAL.findall(path.read_text("utf-8"))


def _write(tables: dict[str, dict[str, list[str]]]) -> None:
    """The first and the last release of each, one a line."""
    lines = []
    for title, table in tables.items():
        rows = [f'  "{name}": ["{seen[0]}", "{seen[-1]}"]' for name, seen in sorted(table.items())]
        lines.append(f' "{title}": {{\n' + ",\n".join(rows) + "\n }")
    about = ' "made_by": "tools/dump_entry_points.py"'
    print("{\n" + about + ",\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
