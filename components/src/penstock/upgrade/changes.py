"""The flags, variables and fields of a graph that differ between two versions of Dynamo.

From the tables that the parsers of each version made, compared with what the chart renders.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engines.versions import Difference, compare, facts, first_with, knows
from penstock.errors import Problem
from penstock.graph.load import LoadedGraph
from penstock.graph.origin import origin
from penstock.graph.versions import VERSIONS, order
from penstock.manifests.deployment import Launch
from penstock.manifests.source import Source
from penstock.strict_yaml.places import Path, place_of
from penstock.upgrade.report import Change

# Sections of a graph with arguments, and the modules that get them.
WORKERS = ("engine", "prefill", "decode", "worker")


@dataclass(kw_only=True)
class SettingChanges:
    """What a comparison found."""

    changes: list[Change] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    # Path of an argument → the argument, or the arguments, with the new name.
    renames: dict[Path, tuple[str, ...]] = field(default_factory=dict)


def modules(loaded: LoadedGraph) -> Mapping[str, str]:
    """Section with arguments → module that reads them."""
    engine = f"dynamo.{loaded.graph.engine.kind}"
    return {"frontend": "dynamo.frontend", **dict.fromkeys(WORKERS, engine)}


def arguments(loaded: LoadedGraph) -> Iterator[tuple[Path, str, str]]:
    """(path, module, argument) of every flag that the graph itself contains."""
    for section, module in modules(loaded).items():
        listed: Sequence[str] = (loaded.values.get(section) or {}).get("args") or ()
        for at, argument in enumerate(listed):
            if argument.startswith("--"):
                yield (section, "args", at), module, argument


def variables(loaded: LoadedGraph) -> Iterator[tuple[str, str]]:
    """(place, name) of every environment variable that the graph itself sets."""
    for section in ("", "frontend", *WORKERS):
        values = loaded.values if not section else loaded.values.get(section) or {}
        for name in values.get("env") or {}:
            yield f"{section}.env.{name}".lstrip("."), name


def require_known_flags(loaded: LoadedGraph, version: str) -> list[Problem]:
    """Flags that only a newer version than ``version`` has."""
    problems = []
    for path, module, argument in arguments(loaded):
        place, flag = place_of(path), argument.partition("=")[0]
        first = first_with(module, flag)
        if first is None or knows(version, module, flag) or order(first) < order(version):
            continue
        problems.append(
            Problem(
                file=loaded.source,
                line=loaded.places.line_of(place),
                place=place,
                message=f"{flag} needs Dynamo {first}, but the graph targets {version}",
                fix=f'Remove {flag}, or set `dynamo: "{first}"`.',
            )
        )
    return problems


def own_settings(loaded: LoadedGraph, old: str, new: str) -> SettingChanges:
    """The arguments and variables that the graph itself contains."""
    settings = SettingChanges()
    by_flag: dict[tuple[str, str], list[Difference]] = {}
    for difference in compare(old, new):
        for spelling in difference.spellings:
            by_flag.setdefault((difference.module, spelling), []).append(difference)
    for path, module, argument in arguments(loaded):
        for difference in by_flag.get((module, argument.partition("=")[0]), ()):
            _argument(settings, loaded, path, argument, difference, new)
    by_variable = {d.variable: d for d in compare(old, new) if d.variable and d.what != "added"}
    for place, name in variables(loaded):
        if name in by_variable:
            _variable(settings, loaded, place, name, by_variable[name], new)
    return settings


def _argument(
    settings: SettingChanges,
    loaded: LoadedGraph,
    path: Path,
    argument: str,
    difference: Difference,
    new: str,
) -> None:
    place = place_of(path)
    line = loaded.places.line_of(place)
    flag, equals, value = argument.partition("=")
    if difference.what == "renamed" or (
        difference.what == "removed" and difference.replacement.startswith("--")
    ):
        also = (difference.also,) if difference.also else ()
        settings.renames[path] = (f"{difference.replacement}{equals}{value}", *also)
        called = " and ".join((difference.replacement, *also))
        text = f"{flag} is called {called} in {new}; the file is changed"
        settings.changes.append(Change(place=place, line=line, text=text))
    elif difference.what == "removed":
        use = (
            f"Use {difference.replacement} instead of it."
            if difference.replacement
            else f"Remove {flag}."
        )
        message = f"{flag} does not exist in Dynamo {new}"
        settings.problems.append(
            Problem(file=loaded.source, line=line, place=place, message=message, fix=use)
        )
    elif difference.what != "added":
        text = f"{difference.what}: {difference.text}"
        settings.changes.append(Change(place=place, line=line, text=text))


def _variable(
    settings: SettingChanges,
    loaded: LoadedGraph,
    place: str,
    name: str,
    difference: Difference,
    new: str,
) -> None:
    line = loaded.places.line_of(place)
    if difference.what == "removed":
        message = f"Dynamo {new} does not read {name}: its flag {difference.flag} was removed"
        fix = f"Use {difference.replacement}." if difference.replacement else f"Remove {name}."
        problem = Problem(file=loaded.source, line=line, place=place, message=message, fix=fix)
        settings.problems.append(problem)
    else:
        text = f"{difference.what}: flag of {name}: {difference.text}"
        settings.changes.append(Change(place=place, line=line, text=text))


def rendered(before: Source, after: Source, new: str) -> Iterator[Change]:
    """Flags and variables that the chart writes for one version and not for the other, and those
    that it still writes although the parsers changed them. Without the graph's own."""
    assert before.loaded is not None
    assert after.loaded is not None
    old = before.loaded.graph.dynamo_version
    changed = {
        (difference.module, spelling): difference
        for difference in compare(old, new)
        if difference.what in ("changed", "deprecated", "removed")
        for spelling in difference.spellings
    }
    seen: set[tuple[str, str]] = set()
    for component in before.deployment.components:
        in_graph = _set_by_graph(before.loaded, component.name) | _set_by_graph(
            after.loaded, component.name
        )
        other = next((c for c in after.deployment.components if c.name == component.name), None)
        for launch, next_ in zip(component.launches, other.launches if other else (), strict=False):
            for text in _of_launch(launch, next_, changed, in_graph, new):
                place = _origin(before.loaded, component.name, text)
                if (place, text) not in seen:
                    seen.add((place, text))
                    yield Change(place=place, line=before.loaded.places.line_of(place), text=text)


def _set_by_graph(loaded: LoadedGraph, component: str) -> set[str]:
    """The flags and variables of the component that the graph itself contains."""
    sections = (component, "engine") if component in WORKERS else (component,)
    flags = {text.partition("=")[0] for path, _, text in arguments(loaded) if path[0] in sections}
    return flags | {
        name for place, name in variables(loaded) if place.partition(".")[0] in (*sections, "env")
    }


def _of_launch(
    old: Launch,
    new: Launch,
    changed: Mapping[tuple[str, str], Difference],
    in_graph: Collection[str],
    version: str,
) -> Iterator[str]:
    flags = [
        {a for a in launch.arguments if a.startswith("--") and a.partition("=")[0] not in in_graph}
        for launch in (old, new)
    ]
    for flag in sorted(flags[0] - flags[1]):
        yield f"the chart no longer writes {flag}"
    for flag in sorted(flags[1] - flags[0]):
        yield f"the chart writes {flag}"
    for flag in sorted(flags[0] & flags[1]):
        if (difference := changed.get((old.module or "", flag))) is not None:
            yield f"{difference.what}: {difference.text}"
    variables_ = {d.variable: d for d in changed.values() if d.variable and d.module == old.module}
    for name in sorted(set(old.env) & set(variables_) - set(in_graph)):
        yield f"{variables_[name].what}: flag of {name}: {variables_[name].text}"
    known = set(facts(version)["variables"])
    every = {name for v in VERSIONS for name in facts(v)["variables"]}
    for name in sorted(set(new.env) & every - known):
        yield f"Dynamo {version} does not read {name}"


def _origin(loaded: LoadedGraph, component: str, text: str) -> str:
    """The field of the graph from which the chart derives the flag or the variable of the text."""
    name = re.search(r"--[a-z0-9-]+|DYN_[A-Z_]+", text)
    if name is None:
        return component
    kind = "args" if name[0].startswith("--") else "env"
    return origin(loaded, (component, kind, name[0])).path
