"""A fix as YAML to paste: in the graph's words for a graph, in the manifest's for a manifest."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import join
from typing import Any

import yaml

from penstock.checks.fields import Path, in_graph, in_manifest
from penstock.checks.finding import Fix
from penstock.checks.subject import FRONTEND
from penstock.engines.flags import Given, flag_table
from penstock.engines.settings import At
from penstock.manifests.deployment import Component, Engine, KnownConfig, UnknownConfig
from penstock.manifests.read import Manifest

# Places of a graph whose value is that of the engine's key which they decide.
SAME_VALUE = (
    *("model.context_length", "kv_transfer.buffer_tokens", "kv_transfer.timeout_ms"),
    *("speculation.draft_tokens", "speculation.draft_model"),
    *("model.reasoning_parser", "model.tool_call_parser"),
)
# The frontend's flags that fixes give, as variables.
VARIABLES = {
    "--migration-limit": "DYN_MIGRATION_LIMIT",
    "--router-mode": "DYN_ROUTER_MODE",
    "--router-replica-sync": "DYN_ROUTER_REPLICA_SYNC",
}


def settled(fix: Fix, at: At, manifest: Manifest, *, is_graph: bool) -> Fix:
    """The fix as this file can hear it: a key as a flag where a flag outvotes the file, and in
    words what YAML beside the old one cannot say."""
    if at.component not in manifest.pods:
        return fix
    component = manifest.deployment.component(at.component)
    if fix.config and component.engine in (Engine.VLLM, Engine.SGLANG):
        has_file = is_graph or isinstance(component.engine_config, (KnownConfig, UnknownConfig))
        is_flag = at.what == "args" or not has_file
        fix = _as_flags(fix, component) if is_flag else _as_keys(fix, at, is_graph=is_graph)
    if not fix.args:
        return fix
    if not is_graph and any(launch.shell for launch in component.launches):
        return replace(fix, words=f"{fix.words}: {join(fix.args)}, in its script", args=())
    if not is_graph and _operator_says_what_runs(at, manifest) and fix.args[0] in VARIABLES:
        name, value = VARIABLES[fix.args[0]], (*fix.args, "true")[1]
        return replace(fix, args=(), env={**fix.env, name: value})
    said = {spelling for one in _given(component) if one.flag for spelling in one.flag.spellings}
    if fix.args[0] in said and "in place of" not in fix.words:
        return replace(fix, words=f"{fix.words}, in place of what is there")
    return fix


def _operator_says_what_runs(at: At, manifest: Manifest) -> bool:
    """A frontend without command and args, for which the operator writes both: args alone would
    be Python's."""
    main = manifest.pods[at.component].containers[0]
    is_said = main.cursor["command"].value or main.cursor["args"].value
    return main.defaults_to_frontend and not is_said


def _given(component: Component) -> Iterator[Given]:
    for launch in component.launches:
        table = flag_table(launch.module or "")
        yield from table.read(launch.arguments) if table else ()


def _as_flags(fix: Fix, component: Component) -> Fix:
    """Keys as flags; one that is taken away is told in words, and so is a list. Of a section that
    a flag gives as JSON all is written again: a part beside it would replace it."""
    table = flag_table(f"dynamo.{component.engine}")
    known = table.by_spelling if table else {}
    sections = {
        one.flag.name: one.value
        for one in _given(component)
        if one.flag and not one.inner and isinstance(one.value, dict)
    }
    flags: list[str] = []
    words = fix.words
    whole: dict[str, Any] = {}
    for key, value in fix.config.items():
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
    return replace(fix, words=words, config={}, graph={}, args=tuple(flags))


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


def _as_keys(fix: Fix, at: At, *, is_graph: bool) -> Fix:
    """A switch in the spelling that is there (`no-x`); a manifest's null would be the word None."""
    config: dict[str, Any] = {}
    words = fix.words
    for key, value in fix.config.items():
        negative = f"no-{key}"
        if value is None and not is_graph:
            words += f": remove {key}"
        elif isinstance(value, bool) and _key(at).replace("_", "-") == negative:
            config[negative] = not value
        else:
            config[key] = value
    return replace(fix, words=words, config=config)


def _key(at: At) -> str:
    return ".".join(map(str, at.path)) if at.what == "config" else ""


def to_paste(fix: Fix, at: At, manifest: Manifest, place: str | None) -> str:
    """Of a fix that is `settled`; ``place`` is where a graph says what is wrong, None for a
    manifest. Empty where it is no single change."""
    fix = replace(fix, env={n: text for n, text in fix.env.items() if text is not None})
    return _for_graph(fix, at, place) if place is not None else _for_manifest(fix, at, manifest)


def _for_graph(fix: Fix, at: At, place: str) -> str:
    tree: dict[str, Any] = {}
    for path, value in fix.graph.items():
        _put(tree, path.split("."), value)
    if not fix.graph and at.component:
        for key, value in fix.config.items():
            _put(tree, _where(key, at, place), value)
        for name, text in fix.env.items():
            _put(tree, [at.component, "env", name], text)
        if fix.args and fix.args[0] == "".join(map(str, at.path)) and place in SAME_VALUE:
            _put(tree, place.split("."), fix.args[1])
        elif fix.args:
            where = "engine" if place.startswith("engine.args") else at.component
            _put(tree, [where, "args"], list(fix.args))
        for key, value in fix.fields.items():
            steps = _steps(key)
            dotted = in_graph(steps, at.component)[0]
            # The last step may have dots: an annotation's name.
            head = dotted.removesuffix(f".{steps[-1]}")
            _put(tree, head.split(".") + ([steps[-1]] if head != dotted else []), value)
    return _text(tree)


def _where(key: str, at: At, place: str) -> list[str]:
    """Where a graph has the engine's key: as it is spelt there, or what decides it."""
    if "." in key and at.what == "config" and at.path == (key,):
        # `section.key`, which is one key to vLLM's file.
        return [at.component, "config", place.partition(".config.")[2] or key]
    is_this = key.replace("_", "-") == ".".join(map(str, at.path)).replace("_", "-")
    if is_this and (place in SAME_VALUE or place.startswith(f"{at.component}.config.")):
        return place.split(".")
    return [at.component, "config", *key.split(".")]


def _for_manifest(fix: Fix, at: At, manifest: Manifest) -> str:
    """A part for each object that changes, under a line that says which."""
    config: dict[str, Any] = {}
    for key, value in fix.config.items():
        _put(config, _spelt(key, at, manifest), value)
    deployment: dict[str, Any] = {}
    for key, value in fix.deployment.items():
        _put(deployment, _steps(key), value)
    component: dict[str, Any] = {}
    fields = {_steps(key): value for key, value in fix.fields.items()}
    if fix.env:
        entries = [{"name": name, "value": value} for name, value in fix.env.items()]
        fields["main", "env"] = entries
    if fix.args:
        module = ("-m", FRONTEND) if _operator_says_what_runs(at, manifest) else ()
        fields["main", "args"] = [*module, *fix.args]
    for path, value in fields.items():
        _put(component, _in_component(path, at, manifest), value)
    parts = {
        _file_of(at, manifest): config,
        "the deployment": deployment,
        f"component {at.component}": component,
    }
    return "\n".join(f"# in {where}\n{_text(tree)}" for where, tree in parts.items() if tree)


def _spelt(key: str, at: At, manifest: Manifest) -> list[str]:
    """A key of the engine's file, spelt as the file has it: vLLM and SGLang take `_` for `-`."""
    is_known = at.component in manifest.pods
    config = manifest.deployment.component(at.component).engine_config if is_known else None
    said = list(config.values) if isinstance(config, KnownConfig) else []
    if key in said:
        return [key]
    head, *rest = key.split(".")
    alike = [str(k) for k in said if str(k).replace("_", "-") == head.replace("_", "-")]
    return [(alike or [head])[0], *rest]


def _file_of(at: At, manifest: Manifest) -> str:
    if at.component not in manifest.pods:
        return "the engine's configuration file"
    config = manifest.deployment.component(at.component).engine_config
    if isinstance(config, KnownConfig):
        return config.place
    return f"the engine's configuration file of {at.component}"


def _steps(key: str) -> Path:
    """The steps of a field's key; `~1` is a slash inside one."""
    return tuple(step.replace("~1", "/") for step in key.split("/"))


def _in_component(path: Path, at: At, manifest: Manifest) -> Path:
    """The field's path below its component."""
    pod = manifest.pods.get(at.component)
    return in_manifest(path, pod)[len(pod.cursor.path) :] if pod else path


def _put(tree: dict[str, Any], path: Sequence[Any], value: Any) -> None:
    """An index stands for the container `main`, the only list that fields go through."""
    step, *rest = path
    if not rest:
        tree[str(step)] = dict(value) if isinstance(value, Mapping) else value
    elif isinstance(rest[0], int):
        _put(tree.setdefault(str(step), [{"name": "main"}])[0], rest[1:], value)
    elif isinstance(below := tree.setdefault(str(step), {}), dict):
        _put(below, rest, value)


def _text(tree: Mapping[str, Any]) -> str:
    if not tree:
        return ""
    return yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True).rstrip("\n")
