"""The names that a compiled file of rows uses."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from penstock.checks import version_range
from penstock.checks.finding import Fix, Level, RuleResult
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
from penstock.manifests.deployment import Component, Engine
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

__all__ = [
    "Fix",
    "Level",
    "Location",
    "Rule",
    "RuleResult",
    "Versions",
    "all_of",
    "any_of",
    "attribute",
    "calculated",
    "called",
    "compared",
    "components_of",
    "element",
    "elements",
    "engines_of",
    "is_set",
    "key_of",
    "levels_of",
    "located",
    "negated",
    "pairs_of",
    "place_in",
    "reported_by_reader",
    "reported_by_run",
    "steps_of",
    "use_facts",
    "versions_of",
    "workers_of",
]


def use_facts(namespace: dict[str, Any], modules: Iterable[str]) -> None:
    """Add the public names of the modules, and those of Python that expressions may call. A name
    that means different things in two modules is left out."""
    facts: dict[str, Any] = {}
    ambiguous = set()
    for module in modules:
        import_module(module)
        for name, value in vars(sys.modules[module]).items():
            if facts.setdefault(name, value) is not value:
                ambiguous.add(name)
    hidden = {*__all__, *ambiguous}
    public = {
        name: facts[name] for name in facts if name not in hidden and not name.startswith("_")
    }
    namespace.update(public, **BUILTINS)


def known_facts(modules: Iterable[str]) -> set[str]:
    """The names that expressions of a file with these facts may use."""
    namespace: dict[str, Any] = {}
    use_facts(namespace, modules)
    return {*namespace}


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


def steps_of(path: str) -> tuple[str, ...]:
    """`metadata/annotations/nvidia.com~1x` as a path; a slash within a key is written as `~1`."""
    return tuple(step.replace("~1", "/") for step in path.split("/"))
