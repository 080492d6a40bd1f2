"""What a worker refuses just after its parser: text flags that hold JSON or name a YAML file.

The parser keeps them as text; the worker ends when it reads them
(`dynamo/trtllm/workers/llm_worker.py`).
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

import yaml

from penstock.manifests.deployment import Launch

JSON_FLAGS = {
    "override_engine_args": "--override-engine-args",
    "model_loader_extra_config": "--model-loader-extra-config",
}


def refusals_at_start(launch: Launch, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """One text for each flag whose value the worker cannot read; empty for other engines."""
    if launch.module != "dynamo.trtllm":
        return ()
    texts = [_not_an_object(flag, settings.get(name)) for name, flag in JSON_FLAGS.items()]
    path = settings.get("extra_engine_args") or ""
    at = posixpath.normpath(posixpath.join(launch.cwd or "/", path))
    texts.append(_not_a_mapping(path, launch.files.get(at)))
    return tuple(text for text in texts if text)


def _not_an_object(flag: str, text: Any) -> str:
    if not text:
        return ""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"argument {flag}: {text!r} is not JSON ({error})"
    return "" if isinstance(value, dict) else f"argument {flag}: {text!r} is not a JSON object"


def _not_a_mapping(path: str, text: str | None) -> str:
    if text is None:
        return ""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return f"argument --extra-engine-args: {path} is not YAML ({' '.join(str(error).split())})"
    if isinstance(value, dict):
        return ""
    return f"argument --extra-engine-args: {path} must hold a mapping, got {type(value).__name__}"
