"""A fix as YAML to paste: in the graph's words for a graph, in the manifest's for a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from penstock.checks.fields import Path, in_graph, in_manifest
from penstock.checks.finding import Fix
from penstock.checks.settle import operator_says_what_runs
from penstock.engines.settings import Location
from penstock.manifests.deployment import KnownConfig
from penstock.manifests.read import Manifest
from penstock.serving.deployment import FRONTEND

# Places of a graph whose value is that of the engine's key which they decide.
SAME_VALUE = (
    *("model.context_length", "kv_transfer.buffer_tokens", "kv_transfer.timeout_ms"),
    *("speculation.draft_tokens", "speculation.draft_model"),
    *("model.reasoning_parser", "model.tool_call_parser"),
)


def to_paste(fix: Fix, location: Location, manifest: Manifest, place: str | None) -> str:
    """Of a fix that is settled (`checks.settle`); ``place`` is where a graph says what is wrong,
    None for a manifest. Empty where it is no single change."""
    fix = replace(fix, env={n: text for n, text in fix.env.items() if text is not None})
    return (
        _for_graph(fix, location, place)
        if place is not None
        else _for_manifest(fix, location, manifest)
    )


def _for_graph(fix: Fix, location: Location, place: str) -> str:
    tree: dict[str, Any] = {}
    for path, value in fix.graph.items():
        _put(tree, path.split("."), value)
    if not fix.graph and location.component:
        for key, value in fix.config.items():
            _put(tree, _where(key, location, place, is_renamed="in place of" in fix.text), value)
        for name, text in fix.env.items():
            _put(tree, [location.component, "env", name], text)
        if fix.args and fix.args[0] == "".join(map(str, location.path)) and place in SAME_VALUE:
            _put(tree, place.split("."), fix.args[1])
        elif fix.args:
            where = "engine" if place.startswith("engine.args") else location.component
            _put(tree, [where, "args"], list(fix.args))
        for key, value in fix.fields.items():
            steps = _steps(key)
            dotted = in_graph(steps, location.component)[0]
            # The last step may have dots: an annotation's name.
            head = dotted.removesuffix(f".{steps[-1]}")
            _put(tree, head.split(".") + ([steps[-1]] if head != dotted else []), value)
    return _text(tree)


def _where(key: str, location: Location, place: str, *, is_renamed: bool) -> list[str]:
    """Where a graph has the engine's key: as it is spelt there, or what decides it; what takes the
    place of another key stands beside that."""
    if is_renamed and place.startswith("engine.config."):
        return ["engine", "config", *key.split(".")]
    if "." in key and location.what == "config" and location.path == (key,):
        # `section.key`, which is one key to vLLM's file.
        return [location.component, "config", place.partition(".config.")[2] or key]
    is_this = key.replace("_", "-") == ".".join(map(str, location.path)).replace("_", "-")
    if is_this and (place in SAME_VALUE or place.startswith(f"{location.component}.config.")):
        return place.split(".")
    return [location.component, "config", *key.split(".")]


def _for_manifest(fix: Fix, location: Location, manifest: Manifest) -> str:
    """A part for each object that changes, under a line that says which."""
    config: dict[str, Any] = {}
    for key, value in fix.config.items():
        _put(config, _spelt(key, location, manifest), value)
    deployment: dict[str, Any] = {}
    for key, value in fix.deployment.items():
        _put(deployment, _steps(key), value)
    component: dict[str, Any] = {}
    fields = {_steps(key): value for key, value in fix.fields.items()}
    if fix.env:
        entries = [{"name": name, "value": value} for name, value in fix.env.items()]
        fields["main", "env"] = entries
    if fix.args:
        module = ("-m", FRONTEND) if operator_says_what_runs(location, manifest) else ()
        fields["main", "args"] = [*module, *fix.args]
    for path, value in fields.items():
        _put(component, _in_component(path, location, manifest), value)
    parts = {
        _file_of(location, manifest): config,
        "the deployment": deployment,
        f"component {location.component}": component,
    }
    return "\n".join(f"# in {where}\n{_text(tree)}" for where, tree in parts.items() if tree)


def _spelt(key: str, location: Location, manifest: Manifest) -> list[str]:
    """A key of the engine's file, spelt as the file has it: vLLM and SGLang take `_` for `-`."""
    is_known = location.component in manifest.pods
    config = manifest.deployment.component(location.component).engine_config if is_known else None
    said = list(config.values) if isinstance(config, KnownConfig) else []
    if key in said:
        return [key]
    head, *rest = key.split(".")
    alike = [str(k) for k in said if str(k).replace("_", "-") == head.replace("_", "-")]
    return [(alike or [head])[0], *rest]


def _file_of(location: Location, manifest: Manifest) -> str:
    if location.component not in manifest.pods:
        return "the engine's configuration file"
    config = manifest.deployment.component(location.component).engine_config
    if isinstance(config, KnownConfig):
        return config.place
    return f"the engine's configuration file of {location.component}"


def _steps(key: str) -> Path:
    """The steps of a field's key; `~1` is a slash inside one."""
    return tuple(step.replace("~1", "/") for step in key.split("/"))


def _in_component(path: Path, location: Location, manifest: Manifest) -> Path:
    """The field's path below its component."""
    pod = manifest.pods.get(location.component)
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
