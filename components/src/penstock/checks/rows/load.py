"""Import files of rows: those of the package, with their bytecode cached, and those of a user."""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType
from typing import Any

from penstock.checks.rule import Rule


def packaged_rules(file: Path) -> tuple[Rule, ...]:
    """The rules of a file in the package."""
    name = f"penstock.checks.rules.{file.parent.name}.{file.name}"
    loader = _RowLoader(name, str(file))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(file)))
    sys.modules[name] = module
    loader.exec_module(module)
    return module.RULES  # type: ignore[no-any-return]


class _RowLoader(SourceFileLoader):
    """Compiles rows as Python compiles a module: the bytecode lies in `__pycache__`."""

    def source_to_code(  # type: ignore[override]
        self, data: bytes, path: str, *, _optimize: int = -1
    ) -> CodeType:
        from penstock.checks.rows.rule_rows import python_of  # only if the cache is old

        return compile(python_of(bytes(data).decode(), path), path, "exec", optimize=_optimize)

    def path_stats(self, path: str) -> dict[str, Any]:
        """The bytecode is also old if the compiler of rows is newer."""
        stats = dict(super().path_stats(path))
        return {**stats, "mtime": max(stats["mtime"], _newest_compiler())}


@cache
def _newest_compiler() -> float:
    return max(path.stat().st_mtime for path in Path(__file__).parent.glob("*.py"))
