"""Import files of rows: those of the package, with their bytecode cached, and those of a user."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType
from typing import Any

from penstock.checks.rule import Rule
from penstock.errors import InputError, Problem
from penstock.graph.text_file import read_text_file


def packaged_rules(file: Path) -> tuple[Rule, ...]:
    """The rules of a file in the package."""
    name = f"penstock.checks.rules.{file.parent.name}.{file.name}"
    loader = _RowLoader(name, str(file))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(file)))
    sys.modules[name] = module
    loader.exec_module(module)
    return module.RULES  # type: ignore[no-any-return]


def user_rules(folders: Iterable[Path], known: Collection[str]) -> tuple[Rule, ...]:
    """The rules of all YAML files in a user's folders, in the order of the file names.

    ``known``: the ids of other rules. Raises InputError with the file and line of each error.
    """
    from penstock.checks.rows.rule_rows import python_of
    from penstock.checks.rows.runtime import known_facts

    rules: dict[str, Rule] = {}
    problems: list[Problem] = []
    # A folder that is named twice counts once.
    for file in (file for folder in dict.fromkeys(folders) for file in _files_of_rows(folder)):
        text = read_text_file(file)
        namespace: dict[str, Any] = {}
        try:
            source = python_of(text, str(file), known_facts(()), facts=())
            exec(compile(source, str(file), "exec"), namespace)  # noqa: S102  of checked expressions
        except InputError as error:
            problems += error.problems
        except (KeyError, RecursionError, SyntaxError, TypeError, ValueError) as error:
            # The versions, engines or levels of a row, or an expression nested too deeply.
            problems.append(Problem(file=str(file), message=f"a rule cannot be made: {error}"))
        for rule in namespace.get("RULES", ()):
            if problem := _refused_id(rule, known, rules):
                problems.append(problem)
            rules.setdefault(rule.id, rule)
    if problems:
        raise InputError(*problems)
    return tuple(rules.values())


def _files_of_rows(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.glob("*.y*ml") if path.is_file())
    if not files:
        message = "has no YAML file" if folder.is_dir() else "is no folder"
        fix = "Name a folder with files such as rules.yaml."
        raise InputError(Problem(file=str(folder), message=message, fix=fix))
    return files


def _refused_id(
    rule: Rule, known: Collection[str], user_rules: Mapping[str, Rule]
) -> Problem | None:
    file, _, line = rule.origin.rpartition(":")
    if rule.id.startswith("PS") or rule.id in known:
        message, fix = "ids that begin with PS are penstock's", "Use another prefix, such as ACME."
    elif rule.id in user_rules:
        message, fix = f"the id is also that of {user_rules[rule.id].origin}", "Use another number."
    else:
        return None
    return Problem(file=file, line=int(line), place=rule.id, message=message, fix=fix)


class _RowLoader(SourceFileLoader):
    """Compiles rows as Python compiles a module: the bytecode is cached in `__pycache__`."""

    def source_to_code(  # type: ignore[override]
        self, data: bytes, path: str, *, _optimize: int = -1
    ) -> CodeType:
        from penstock.checks.rows.rule_rows import python_of  # only if the cache is outdated

        return compile(python_of(bytes(data).decode(), path), path, "exec", optimize=_optimize)

    def path_stats(self, path: str) -> dict[str, Any]:
        """The bytecode is also outdated if a module of this package is newer."""
        stats = dict(super().path_stats(path))
        return {**stats, "mtime": max(stats["mtime"], _newest_compiler())}


@cache
def _newest_compiler() -> float:
    return max(path.stat().st_mtime for path in Path(__file__).parent.glob("*.py"))
