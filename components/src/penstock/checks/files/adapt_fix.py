"""Write the engine keys of a fix as this deployment sets them: as file keys, flags or text."""

from __future__ import annotations

import copy
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.checks.finding import Fix
from penstock.engines.flags import GivenFlag, flag_table, given_flags
from penstock.engines.settings import DOTTED, OVERRIDE, OVERRIDE_VARIABLE, Location, read_settings
from penstock.manifests.deployment import Component, Engine


def adapt_config(
    fix: Fix, location: Location, component: Component, *, has_file: bool, accepts_null: bool
) -> Fix:
    """Move keys that a flag overrides to `Fix.args`; what YAML cannot express goes into the text.

    ``has_file``: the engine reads a file. ``accepts_null``: a null in it leaves the key unset.
    """
    if fix.config and component.engine in (Engine.VLLM, Engine.SGLANG):
        is_flag = location.what == "args" or not has_file
        flagged = {key for key in fix.config if _is_flagged(key, component, otherwise=is_flag)}
        fix = _as_keys(fix, location, component, flagged, accepts_null=accepts_null)
        return _as_flags(fix, component, flagged)
    if component.engine is Engine.TRTLLM:
        return _as_overrides(fix, component)
    return fix


def replaced_flag(fix: Fix, component: Component) -> str | None:
    """The first flag of the fix as it is on the command line already; None if it is not there."""
    if not fix.args or fix.replaces is not None:
        return None
    matches = (
        argument
        for argument in _flags_of(component)
        if argument.flag and fix.args[0] in argument.flag.spellings
    )
    return next((argument.spelling for argument in matches), None)


def _location_of(key: str, component: Component) -> Location | None:
    """Where any of the component's processes sets the key."""
    for launch in component.launches:
        if (line := read_settings(component, launch).get(key)) is not None:
            return line.location
    return None


def _is_flagged(key: str, component: Component, *, otherwise: bool) -> bool:
    location = _location_of(key, component)
    return location.what == "args" if location is not None else otherwise


def _as_overrides(fix: Fix, component: Component) -> Fix:
    """TensorRT-LLM's keys that an override sets: a change in the file would have no effect."""
    for key, setting in fix.config.items():
        location = _location_of(key, component)
        if location is None or location.what not in ("args", "env"):
            continue
        name = str(location.path[0])
        if name.startswith((DOTTED, f"--{OVERRIDE}")) or name == OVERRIDE_VARIABLE:
            config = {k: v for k, v in fix.config.items() if k != key}
            fix = fix.and_also(f"Set `{key}` to {setting} in `{name}`.")
            fix = replace(fix, config=config, graph={})
    return fix


def _flags_of(component: Component) -> Iterator[GivenFlag]:
    for launch in component.launches:
        yield from given_flags(launch.module or "", launch.arguments)


def _as_flags(fix: Fix, component: Component, flagged: Container[str]) -> Fix:
    """The ``flagged`` keys as flags. Removals and lists go into the text. A section that a flag
    gives as JSON is written again as a whole, because a flag for one part would replace it."""
    table = flag_table(f"dynamo.{component.engine}")
    known = table.by_spelling if table else {}
    sections = {
        argument.flag.name: argument.value
        for argument in _flags_of(component)
        if argument.flag and not argument.inner and isinstance(argument.value, dict)
    }
    flags: list[str] = []
    steps: list[str] = []
    rewritten: dict[str, Any] = {}
    rest = {key: setting for key, setting in fix.config.items() if key not in flagged}
    for key, setting in fix.config.items():
        if key in rest:
            continue
        head, _, inner = key.partition(".")
        if inner and head in sections:
            rewritten.setdefault(head, copy.deepcopy(sections[head]))
            _change(rewritten[head], inner.split("."), setting)
            continue
        negative = f"--no-{key}"
        if setting is False and negative in known:
            flags.append(negative)
        elif setting is None or setting is False or isinstance(setting, list):
            steps.append(f"Set `--{key}` to {setting}." if setting else f"Remove `--{key}`.")
        else:
            text = json.dumps(setting) if isinstance(setting, Mapping) else str(setting)
            flags += [f"--{key}"] if setting is True else [f"--{key}", text]
    for head, setting in rewritten.items():
        flags += [f"--{head}", json.dumps(setting)]
    graph = fix.graph if len(rest) == len(fix.config) else {}
    fix = fix.and_also(*steps)
    return replace(fix, config=rest, graph=graph, args=(*fix.args, *flags))


def _change(section: dict[str, Any], path: Sequence[str], setting: Any) -> None:
    """Set the value at a path of keys, or remove it if ``setting`` is None."""
    step, *rest = path
    if rest:
        below = section.setdefault(step, {})
        if isinstance(below, dict):
            _change(below, rest, setting)
    elif setting is None:
        section.pop(step, None)
    else:
        section[step] = setting


def _as_keys(
    fix: Fix,
    location: Location,
    component: Component,
    flagged: Container[str],
    *,
    accepts_null: bool,
) -> Fix:
    """The other keys by the name that the file uses: `no-x`, `expert-parallel-size`."""
    config: dict[str, Any] = {}
    steps: list[str] = []
    for key, setting in fix.config.items():
        negative = f"no-{key}"
        if key in flagged:
            config[key] = setting
        elif setting is None and not accepts_null:
            steps.append(f"Remove `{key}`.")
        elif isinstance(setting, bool) and _key(location).replace("_", "-") == negative:
            config[negative] = not setting
        else:
            config[_name(key, component)] = setting
    return replace(fix.and_also(*steps), config=config)


def _name(key: str, component: Component) -> str:
    """The name of the flag in the file, which may be another one of its spellings."""
    location = _location_of(key, component)
    if location is None or location.what != "config" or len(location.path) != 1:
        return key
    name = str(location.path[0])
    is_same = name.replace("_", "-") == key.replace("_", "-")
    return key if is_same or "." in key else name


def _key(location: Location) -> str:
    return ".".join(map(str, location.path)) if location.what == "config" else ""
