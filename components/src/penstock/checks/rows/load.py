"""Import files of rows: those of the package, with their bytecode cached, and those of a user.

The source that `rule_rows` writes calls `use_facts`, which adds the names that it uses.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType
from typing import Any

from penstock.checks import version_range
from penstock.checks.finding import Fix, Level, RuleResult, steps_of
from penstock.checks.rows.logic import (
    BUILTINS,
    all_of,
    any_of,
    attribute,
    calculated,
    called,
    compared,
    element,
    elements,
    negated,
)
from penstock.checks.rule import Rule, reported_by_reader, reported_by_run
from penstock.checks.version_range import Versions
from penstock.engines.settings import COMMON_SETTINGS, Location
from penstock.errors import InputError, Problem
from penstock.graph.text_file import read_text_file
from penstock.manifests.deployment import Component, Engine
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker


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

    rules: dict[str, Rule] = {}
    problems: list[Problem] = []
    # A folder that is named twice counts once.
    for file in (file for folder in dict.fromkeys(folders) for file in _files_of_rows(folder)):
        text = read_text_file(file)
        namespace: dict[str, Any] = {}
        try:
            source = python_of(text, str(file), facts_in(()), facts=())
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
        raise InputError(message, file=str(folder), fix=fix)
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


def use_facts(namespace: dict[str, Any], modules: Iterable[str]) -> None:
    """Add the names that a compiled file with facts of these modules uses."""
    namespace.update(PROVIDED, **facts_in(modules))


def facts_in(modules: Iterable[str]) -> Mapping[str, Any]:
    """The public names of the modules, and those of Python that expressions may call. A name that
    means different things in two modules is left out."""
    facts: dict[str, Any] = {}
    hidden = {*PROVIDED}
    for module in modules:
        import_module(module)
        for name, fact in vars(sys.modules[module]).items():
            if name.startswith("_") or facts.setdefault(name, fact) is not fact:
                hidden.add(name)
    return {name: fact for name, fact in facts.items() if name not in hidden} | BUILTINS


def versions_of(versions: str | Mapping[str, Any] | None) -> Versions:
    """A mapping of specifiers, the name of a reason in `version_range`, or any other reason."""
    if isinstance(versions, Mapping):
        return Versions(**versions)
    reason = vars(version_range).get(versions or "")
    return reason if isinstance(reason, Versions) else Versions(every=versions or "not stated")


def engines_of(names: Iterable[str]) -> tuple[Engine, ...]:
    return tuple(Engine(name) for name in names)


def levels_of(names: Iterable[str], level: str) -> tuple[Level, ...]:
    """The levels other than that of the rule, each once."""
    return tuple(Level(name) for name in dict.fromkeys(names) if name != level)


def workers_of(deployment: ServingDeployment, engines: Collection[str]) -> Iterator[Worker]:
    """The workers that run one of the engines; all workers if ``engines`` is empty."""
    for worker in deployment.workers:
        if not engines or worker.engine in engines:
            yield worker


def is_set(name: str, worker: Worker) -> bool:
    """Whether the file sets one of `COMMON_SETTINGS`."""
    return worker.settings.common(name) is not None


def key_of(name: str, worker: Worker) -> str | None:
    """The engine's own key of one of `COMMON_SETTINGS`; None if it has none."""
    return COMMON_SETTINGS[name].get(worker.engine)


def pairs_of(
    deployment: ServingDeployment, engines: Collection[str]
) -> Iterator[tuple[Worker, Worker]]:
    """Prefill and decode workers, as `ServingDeployment.pairs`."""
    for prefill, decode in deployment.pairs:
        if not engines or prefill.engine in engines:
            yield prefill, decode


def components_of(deployment: ServingDeployment) -> Iterator[tuple[Component, Pod]]:
    """Each component with its pod."""
    for component in deployment.components:
        yield component, deployment.pods[component.name]


def place_in(owner: Any, what: str, path: tuple[str, ...]) -> Location:
    """A place in a component; ``owner``: a worker, a process, a component or a pod."""
    if hasattr(owner, "location"):
        return owner.location(what, *path)  # type: ignore[no-any-return]
    return Location(owner.name, what, path)


def located(place: Any) -> Location:
    """The value of `at`; TypeError if it is no place."""
    if isinstance(place, Location):
        return place
    raise TypeError(f"`at` gives {place!r}, not a Location")


# What the source of a compiled file uses besides its facts.
PARTS: tuple[Any, ...] = (
    *(Fix, Level, Location, Rule, RuleResult, Versions, all_of, any_of, attribute, calculated),
    *(called, compared, components_of, element, elements, engines_of, is_set, key_of),
    *(levels_of, located, negated, pairs_of, place_in, reported_by_reader, reported_by_run),
    *(steps_of, versions_of, workers_of),
)
PROVIDED: Mapping[str, Any] = {part.__name__: part for part in PARTS}
