"""A fix in the form that the file at hand can hear: flags, keys, variables, or words."""

from __future__ import annotations

import copy
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import join
from typing import Any

from penstock.checks.finding import Fix
from penstock.engines.flags import Given, flag_table
from penstock.engines.settings import DOTTED, OVERRIDE, OVERRIDE_VARIABLE, Location, read_settings
from penstock.manifests.deployment import Component, Engine, KnownConfig, UnknownConfig
from penstock.manifests.read import Manifest

# The frontend's flags that fixes give, as variables.
VARIABLES = {
    "--migration-limit": "DYN_MIGRATION_LIMIT",
    "--router-mode": "DYN_ROUTER_MODE",
    "--router-replica-sync": "DYN_ROUTER_REPLICA_SYNC",
}


def settled(fix: Fix, location: Location, manifest: Manifest, *, is_graph: bool) -> Fix:
    """The fix as this file can hear it: a key as a flag where a flag outvotes the file, and in
    words what YAML beside the old one cannot say."""
    if location.component not in manifest.pods:
        return fix
    component = manifest.deployment.component(location.component)
    if fix.config and component.engine in (Engine.VLLM, Engine.SGLANG):
        has_file = is_graph or isinstance(component.engine_config, (KnownConfig, UnknownConfig))
        is_flag = location.what == "args" or not has_file
        flagged = {key for key in fix.config if _is_flagged(key, component, otherwise=is_flag)}
        fix = _as_keys(fix, location, component, flagged, is_graph=is_graph)
        fix = _as_flags(fix, component, flagged)
    elif component.engine is Engine.TRTLLM:
        fix = _as_overrides(fix, component)
    if not fix.args:
        return fix
    if not is_graph and any(launch.shell for launch in component.launches):
        return replace(fix, text=f"{fix.text}: {join(fix.args)}, in its script", args=())
    if not is_graph and operator_says_what_runs(location, manifest) and fix.args[0] in VARIABLES:
        name, value = VARIABLES[fix.args[0]], (*fix.args, "true")[1]
        return replace(fix, args=(), env={**fix.env, name: value})
    said = {spelling for one in _given(component) if one.flag for spelling in one.flag.spellings}
    if fix.args[0] in said and "in place of" not in fix.text:
        return replace(fix, text=f"{fix.text}, in place of what is there")
    return fix


def operator_says_what_runs(location: Location, manifest: Manifest) -> bool:
    """A frontend without command and args, for which the operator writes both: args alone would
    be Python's."""
    pod = manifest.pods.get(location.component)
    if pod is None or not pod.containers[0].defaults_to_frontend:
        return False
    main = pod.containers[0].cursor
    return not (main["command"].value or main["args"].value)


def _place_of(key: str, component: Component) -> Location | None:
    """Where the key is set, by any of the component's processes."""
    for launch in component.launches:
        if (found := read_settings(component, launch).get(key)) is not None:
            return found.location
    return None


def _is_flagged(key: str, component: Component, *, otherwise: bool) -> bool:
    location = _place_of(key, component)
    return location.what == "args" if location is not None else otherwise


def _as_overrides(fix: Fix, component: Component) -> Fix:
    """TensorRT-LLM's keys that the file cannot change, as the override says them."""
    for key, value in fix.config.items():
        location = _place_of(key, component)
        name = (
            str(location.path[0])
            if location is not None and location.what in ("args", "env")
            else ""
        )
        if name.startswith((DOTTED, f"--{OVERRIDE}")) or name == OVERRIDE_VARIABLE:
            config = {k: v for k, v in fix.config.items() if k != key}
            fix = replace(fix, text=f"{fix.text}: {key} {value} in {name}", config=config, graph={})
    return fix


def _given(component: Component) -> Iterator[Given]:
    for launch in component.launches:
        table = flag_table(launch.module or "")
        yield from table.read(launch.arguments) if table else ()


def _as_flags(fix: Fix, component: Component, flagged: Container[str]) -> Fix:
    """Those of ``flagged`` as flags; one that is taken away is told in words, and so is a list. Of
    a section that a flag gives as JSON all is written again: a part would replace it."""
    table = flag_table(f"dynamo.{component.engine}")
    known = table.by_spelling if table else {}
    sections = {
        one.flag.name: one.value
        for one in _given(component)
        if one.flag and not one.inner and isinstance(one.value, dict)
    }
    flags: list[str] = []
    words = fix.text
    whole: dict[str, Any] = {}
    rest = {key: value for key, value in fix.config.items() if key not in flagged}
    for key, value in fix.config.items():
        if key in rest:
            continue
        head, _, inner = key.partition(".")
        if inner and head in sections:
            whole.setdefault(head, copy.deepcopy(sections[head]))
            _change(whole[head], inner.split("."), value)
            continue
        negative = f"--no-{key}"
        if value is False and negative in known:
            flags.append(negative)
        elif value is None or value is False or isinstance(value, list):
            words += f": --{key} {value}" if value else f": remove --{key}"
        else:
            text = json.dumps(value) if isinstance(value, Mapping) else str(value)
            flags += [f"--{key}"] if value is True else [f"--{key}", text]
    for head, value in whole.items():
        flags += [f"--{head}", json.dumps(value)]
    graph = fix.graph if len(rest) == len(fix.config) else {}
    return replace(fix, text=words, config=rest, graph=graph, args=(*fix.args, *flags))


def _change(section: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set what a path of keys leads to, or take it out for None."""
    step, *rest = path
    if rest:
        below = section.setdefault(step, {})
        if isinstance(below, dict):
            _change(below, rest, value)
    elif value is None:
        section.pop(step, None)
    else:
        section[step] = value


def _as_keys(
    fix: Fix, location: Location, component: Component, flagged: Container[str], *, is_graph: bool
) -> Fix:
    """Those not of ``flagged`` by the name that is there (`no-x`, `expert-parallel-size`); a
    manifest's null would be the word None."""
    config: dict[str, Any] = {}
    words = fix.text
    for key, value in fix.config.items():
        negative = f"no-{key}"
        if key in flagged:
            config[key] = value
        elif value is None and not is_graph:
            words += f": remove {key}"
        elif isinstance(value, bool) and _key(location).replace("_", "-") == negative:
            config[negative] = not value
        else:
            config[_name(key, component)] = value
    return replace(fix, text=words, config=config)


def _name(key: str, component: Component) -> str:
    """Another name of the same flag, where the file has the key by that."""
    location = _place_of(key, component)
    said = (
        str(location.path[0])
        if location is not None and location.what == "config" and len(location.path) == 1
        else key
    )
    is_same = said.replace("_", "-") == key.replace("_", "-")
    return key if is_same or "." in key else said


def _key(location: Location) -> str:
    return ".".join(map(str, location.path)) if location.what == "config" else ""
