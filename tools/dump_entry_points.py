"""Write which release of Dynamo has which modules to run, and the flags of those without an engine.

    uv run python tools/dump_entry_points.py FOLDER > entry_points.json

FOLDER has one folder per wheel of every patch release, such as `ai-dynamo-1.4.2`. None of their
code runs. A module has a release if any patch of it has the module; so absence is certain.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.version import Version

from dump_flag_history import GUARD, flags_of_files, write_spans
from penstock.engines.releases import RELEASES

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
    "dynamo.router": ("router/*.py",),
    "dynamo.thunderagent_router": ("thunderagent_router/*.py", "router/*.py"),
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
    write_spans("tools/dump_entry_points.py", {"modules": modules, **flags})


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


def _flags(wheel: Path, patterns: Iterable[str]) -> Iterator[str]:
    return flags_of_files(wheel, (path for pattern in patterns for path in wheel.glob(pattern)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
