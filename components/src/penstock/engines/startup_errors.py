"""What a worker rejects after its parser: text flags that contain JSON or name a YAML file.

The parser keeps them as text; the worker exits when it reads them
(`dynamo/trtllm/workers/llm_worker.py`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.manifests.deployment import Launch
from penstock.strict_yaml.loader import load, load_json

JSON_FLAGS = {
    "override_engine_args": "--override-engine-args",
    "model_loader_extra_config": "--model-loader-extra-config",
}
FILE_FLAG = "--extra-engine-args"


@dataclass(frozen=True, kw_only=True)
class StartupError:
    """A flag whose value the worker cannot read."""

    flag: str
    message: str


def startup_errors(launch: Launch, settings: Mapping[str, Any]) -> tuple[StartupError, ...]:
    """Every flag whose value the worker cannot read; empty for engines other than TensorRT-LLM."""
    if launch.module != "dynamo.trtllm":
        return ()
    return tuple(_errors(launch, settings))


def _errors(launch: Launch, settings: Mapping[str, Any]) -> Iterator[StartupError]:
    for name, flag in JSON_FLAGS.items():
        if message := _not_an_object(settings.get(name)):
            yield StartupError(flag=flag, message=message)
    path = settings.get("extra_engine_args") or ""
    at = posixpath.normpath(posixpath.join(launch.cwd or "/", path))
    if message := _not_a_mapping(path, launch.files.get(at)):
        yield StartupError(flag=FILE_FLAG, message=message)


def _not_an_object(text: Any) -> str:
    if not text:
        return ""
    try:
        value = load_json(text)
    except ValueError as error:
        return f"{text!r} is not JSON ({error})"
    return "" if isinstance(value, dict) else f"{text!r} is not a JSON object"


def _not_a_mapping(path: str, text: str | None) -> str:
    if text is None:
        return ""
    try:
        value = load(text)
    except yaml.YAMLError as error:
        return f"{path} is not YAML ({' '.join(str(error).split())})"
    if isinstance(value, dict):
        return ""
    return f"{path} must contain a mapping, got {type(value).__name__}"
