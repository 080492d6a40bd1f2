"""A fix as YAML to paste: in the graph's words for a graph, in the manifest's for a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from penstock.checks.fields import Path, in_graph, in_manifest
from penstock.checks.finding import Fix
from penstock.engines.settings import At
from penstock.manifests.deployment import Engine, KnownConfig
from penstock.manifests.read import Manifest


def to_paste(fix: Fix, at: At, manifest: Manifest, *, is_graph: bool) -> str:
    """Empty where the fix is no single change: also where a flag would outvote it."""
    if fix.config and at.what == "args" and at.component in manifest.pods:
        engine = manifest.deployment.component(at.component).engine
        fix = replace(fix, config={}) if engine in (Engine.VLLM, Engine.SGLANG) else fix
    fix = replace(fix, env={n: text for n, text in fix.env.items() if text is not None})
    return _for_graph(fix, at) if is_graph else _for_manifest(fix, at, manifest)


def _for_graph(fix: Fix, at: At) -> str:
    tree: dict[str, Any] = {}
    for path, value in fix.graph.items():
        _put(tree, path.split("."), value)
    if not fix.graph and at.component:
        for key, value in fix.config.items():
            _put(tree, [at.component, "config", *key.split(".")], value)
        for name, text in fix.env.items():
            _put(tree, [at.component, "env", name], text)
        if fix.args:
            _put(tree, [at.component, "args"], list(fix.args))
        for key, value in fix.fields.items():
            steps = _steps(key)
            dotted = in_graph(steps, at.component)[0]
            # The last step may have dots: an annotation's name.
            head = dotted.removesuffix(f".{steps[-1]}")
            _put(tree, head.split(".") + ([steps[-1]] if head != dotted else []), value)
    return _text(tree)


def _for_manifest(fix: Fix, at: At, manifest: Manifest) -> str:
    parts = []
    if fix.config:
        tree: dict[str, Any] = {}
        for key, value in fix.config.items():
            _put(tree, key.split("."), value)
        parts.append(f"# in {_file_of(at, manifest)}\n{_text(tree)}")
    if fix.env:
        entries = [{"name": name, "value": value} for name, value in fix.env.items()]
        parts.append(_text({"env": entries}))
    if fix.args:
        parts.append(_text({"args": list(fix.args)}))
    if fix.fields:
        tree = {}
        for key, value in fix.fields.items():
            _put(tree, _in_component(_steps(key), at, manifest), value)
        parts.append(_text(tree))
    return "\n".join(parts)


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
