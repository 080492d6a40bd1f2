"""The engine's configuration file, found by the flag that sets its path."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from penstock.errors import Problem
from penstock.manifests.deployment import (
    Engine,
    EngineConfig,
    KnownConfig,
    Launch,
    NoConfig,
    UnknownConfig,
)
from penstock.manifests.documents import Cursor
from penstock.manifests.flags import flag_value
from penstock.manifests.launches import Mounts
from penstock.strict_yaml.document import read_documents
from penstock.strict_yaml.kind import Dialect, DocumentKind, RepeatedKeys
from penstock.strict_yaml.loader import load, load_json
from penstock.strict_yaml.places import node_at

ENGINE_FILE = DocumentKind(
    name="an engine's configuration file",
    dialect=Dialect.KUBERNETES,
    may_quote_lines=False,
    reads_last="the engine uses",
    repeated_keys=RepeatedKeys.WITHOUT_LOSS,
    is_small=True,
)
# The flag of each engine's file, and the variable with the same meaning (dynamo 1.6.1,
# trtllm/backend_args.py; vLLM and SGLang parse `--config` themselves and have no variable).
_FLAGS = {
    Engine.TRTLLM: ("--extra-engine-args", "DYN_TRTLLM_EXTRA_ENGINE_ARGS"),
    Engine.VLLM: ("--config", ""),
    Engine.SGLANG: ("--config", ""),
    Engine.LLAMACPP: ("--config", ""),
    Engine.MOCKER: ("--extra-engine-args", ""),
}


def read_engine_config(
    launch: Launch, engine: Engine | None, mounts: Mounts, cursor: Cursor
) -> EngineConfig:
    """The content of the launch's configuration file; text that cannot be parsed is a problem."""
    if engine is None:
        return NoConfig()
    flag, variable = _FLAGS[engine]
    path = flag_value(launch.argv, flag) or launch.env.get(variable)
    if engine is Engine.SGLANG and (section := flag_value(launch.argv, "--disagg-config")):
        return UnknownConfig(path=section, reason="penstock does not read --disagg-config")
    if not path:
        return NoConfig()
    if launch.unresolved and ("$" in path or "`" in path):
        return UnknownConfig(path=path, reason="only the cluster knows its path")
    at = posixpath.normpath(posixpath.join(launch.cwd or "", path))
    if at in launch.unknown_files:
        return UnknownConfig(path=path, reason=launch.unknown_files[at])
    text = launch.files.get(at)
    if text is None:
        return UnknownConfig(path=path, reason=mounts.why_unknown(at))
    origin = mounts.files.get(at)
    if origin is not None and origin.value != text:
        origin = None  # the launch overwrote it
    place = _place(origin) if origin else f"written by the launch ({launch.place})"
    values = _parse(text, engine, origin or cursor, inner=origin is not None, path=path)
    return KnownConfig(values=values, path=path, place=place)


def _place(origin: Cursor) -> str:
    name = Cursor.at_root(origin.document).at("metadata", "name").value
    return f"ConfigMap/{name}/{origin.path[-1]}"


def _parse(
    text: str, engine: Engine, cursor: Cursor, *, inner: bool, path: str
) -> Mapping[str, Any]:
    try:
        is_json = engine is Engine.MOCKER
        values = load_json(text) if is_json else _yaml(text, cursor, inner=inner, path=path)
    except json.JSONDecodeError as error:
        _report(cursor, f"{path}: not valid JSON: {error.msg}", error.lineno - 1, inner)
        return {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        _report(cursor, f"{path}: not valid YAML: {error.problem or error.context}", line, inner)
        return {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        _report(cursor, f"{path}: not valid YAML: {error}", 0, inner)
        return {}
    if values is None:
        return {}
    if not isinstance(values, dict):
        _report(cursor, f"{path} must contain a mapping, got {type(values).__name__}", 0, inner)
        return {}
    return values


def _yaml(text: str, cursor: Cursor, *, inner: bool, path: str) -> object:
    """The parsed text, read with PyYAML's safe loader as the engines do."""
    _, problems = read_documents(text, path, ENGINE_FILE)
    for problem in problems:
        named = replace(problem, message=f"{path}: {problem.message}")
        _report(cursor, named, (problem.line or 1) - 1, inner)
    return {} if problems else load(text)


def _report(cursor: Cursor, described: Problem | str, offset: int, inner: bool) -> None:
    """Report a problem ``offset`` lines below the beginning of the engine's file.

    A `|` block begins on the line after its key.
    """
    node = node_at(cursor.document.node, cursor.path) if inner else None
    line, column = cursor.position or (None, None)
    if line is not None and getattr(node, "style", None) == "|":
        line, column = line + 1 + offset, None
    problem = Problem(message=described) if isinstance(described, str) else described
    placed = replace(
        problem,
        file=cursor.document.source,
        line=line,
        column=column,
        place=cursor.place,
        fix=problem.fix or "Correct the text of the file.",
    )
    cursor.document.problems.add(placed)
