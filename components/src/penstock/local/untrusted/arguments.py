"""Which flags of a manifest may reach a process: all, except those that run code or move data.

vLLM takes most settings in three ways: as a flag, as a key in the JSON of a flag, and as a key in
the file of `--config`. So every key is treated in the same way, wherever it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from penstock.local.untrusted.reasons import (
    READS,
    RUNS_CODE,
    SENDS,
    SETS_ANY_FLAG,
    UNREADABLE,
    WRITES,
)
from penstock.manifests.flags import by_flag
from penstock.strict_yaml.loader import load

_UNSAFE = {
    "frontend_route_extension": RUNS_CODE,
    "custom_encoder_class": RUNS_CODE,
    "io_processor_plugin": RUNS_CODE,
    "log_config_file": RUNS_CODE,
    "logging_config": RUNS_CODE,
    "logits_processors": RUNS_CODE,
    "model_class_overrides": RUNS_CODE,
    "reasoning_parser_plugin": RUNS_CODE,
    "scheduler_cls": RUNS_CODE,
    "tool_parser_plugin": RUNS_CODE,
    "trust_remote_code": RUNS_CODE,
    "stage_configs_path": SETS_ANY_FLAG,
    "worker_cls": RUNS_CODE,
    "worker_extension_cls": RUNS_CODE,
    "benchmark_output_path": WRITES,
    "download_dir": WRITES,
    "dump_config_to": WRITES,
    "media_output_fs_url": WRITES,
    "mm_encoder_fp8_scale_save_path": WRITES,
    "profiler_config": WRITES,
    "media_output_http_url": SENDS,
    "otlp_traces_endpoint": SENDS,
    "allowed_local_media_path": READS,
}
# Complete flags that are the beginning of an unsafe one; argparse accepts such abbreviations.
_COMPLETE = frozenset({"model", "reasoning", "reasoning_parser"})
_RUNS_CODE_KEY = re.compile(
    r"\w*plugins?(_\w+)?|\w*module_path|\w*_(cls|class)|"
    r"logits_processors|inductor_passes|inductor_compile_config"
)
_WRITES_KEY = re.compile(
    r"debug_dump_path|cache_dir|\w*_(profiler|dump|log)_dir|\w*(storage|disk)_path"
)
_SENDS_KEY = re.compile(r"\w*_url|\w*(proxy|master|parallel)_(ip|addr|address)")
# Modules that the environments of Dynamo and vLLM contain.
_KNOWN_MODULES = ("vllm.", "dynamo.", "lmcache.", "kvbm.")
# Each names an implementation: one of the engine's words, or a dotted name of Python code.
_IMPLEMENTATIONS = frozenset({"backend", "distributed_executor_backend"})
# Addresses of this machine, on which the process listens.
_OWN_ENDPOINT = re.compile(
    r"(tcp://)?(\*|0\.0\.0\.0|\[::\]|localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?"
)
_NAME = re.compile(r"[\w.-]+")
_KEY = re.compile(r"""["']?([\w.-]+)["']?\s*[:=]""")


def safe_arguments(
    arguments: Iterable[str], files: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arguments that may be passed, and for each other flag the reason.

    ``files``: path → text of the files that the manifest brings; `--config` may name one.
    """
    kept: list[str] = []
    reasons: dict[str, str] = {}
    for flag, values in by_flag(arguments):
        reason = _reason(flag, values, files) if flag else ""
        if reason:
            reasons[flag] = reason
        else:
            kept += values
    return tuple(kept), reasons


def _reason(flag: str, values: list[str], files: Mapping[str, str]) -> str:
    """Why the flag is left out; empty when it is not."""
    if flag == "-m":  # the module that the launch runs
        return ""
    values = [value for value in (values[0].partition("=")[2], *values[1:]) if value]
    long = re.sub("^(-cc|-O)(?![a-z])", "--compilation-config", flag)
    if "." in long and not long.startswith("--"):
        return RUNS_CODE  # argparse expands `-c.key` to `-cc.key`
    try:
        if long == "--config":
            return _reason_of_config(values, files)
        key = long.lstrip("-").replace("-", "_")
        name = key.partition(".")[0] if long.startswith("--") else ""
        return _abbreviated(name) or _reason_of_settings(key, [_parsed(v) for v in values])
    except (yaml.YAMLError, ValueError, RecursionError):
        return UNREADABLE


def _reason_of_config(paths: list[str], files: Mapping[str, str]) -> str:
    """vLLM makes a flag of each key of the file, and arguments of its value."""
    if len(paths) != 1 or paths[0] not in files:
        return SETS_ANY_FLAG
    content = load(files[paths[0]])
    if not isinstance(content, Mapping):
        return UNREADABLE
    for key, value in content.items():
        name = str(key).replace("-", "_")
        values = value if isinstance(value, list) else [value]
        if not _NAME.fullmatch(name) or any(
            isinstance(item, str) and item.startswith("-") for item in values
        ):
            return SETS_ANY_FLAG
        parsed = [_parsed(item) if isinstance(item, str) else item for item in values]
        reason = "" if value is False else _abbreviated(name.partition(".")[0])
        if reason := reason or _reason_of_settings(name, value if value is False else parsed):
            return reason
    return ""


def _abbreviated(name: str) -> str:
    if name in _COMPLETE or not name:
        return ""
    return next((reason for key, reason in _UNSAFE.items() if key.startswith(name)), "")


def _parsed(value: str) -> Any:
    """A value in JSON, or its keys in an unusual spelling of it."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        is_mapping = value.lstrip().startswith(("{", "["))
        return dict.fromkeys(_KEY.findall(value), "") if is_mapping else value


def _reason_of_settings(key: str, value: Any) -> str:
    return next(filter(None, (_reason_of(k, v) for k, v in _settings(key, value))), "")


def _settings(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each key with its value, at any depth."""
    seen: set[int] = set()  # a YAML alias can repeat a part without end
    rest = [(key, value)]
    while rest:
        key, value = rest.pop()
        *parents, name = key.replace("-", "_").split(".")
        yield from ((parent, None) for parent in parents)
        yield name, value
        if id(value) in seen:
            continue
        if isinstance(value, Mapping):
            seen.add(id(value))
            rest += [(str(k), v) for k, v in value.items()]
        elif isinstance(value, list):
            seen.add(id(value))
            rest += [(name, item) for item in value]


def _reason_of(key: str, value: Any) -> str:
    if value is False:
        return ""
    if reason := _UNSAFE.get(key):
        return reason
    is_known = isinstance(value, str) and value.startswith(_KNOWN_MODULES)
    if _RUNS_CODE_KEY.fullmatch(key):
        return "" if is_known or isinstance(value, list | None) else RUNS_CODE
    if key == "method" and value == "custom_class":
        return RUNS_CODE
    if key in _IMPLEMENTATIONS and isinstance(value, str) and "." in value:
        return "" if is_known else RUNS_CODE
    if _WRITES_KEY.fullmatch(key):
        return WRITES
    is_remote = key == "endpoint" and str(value).startswith("tcp://")
    if _SENDS_KEY.fullmatch(key) or is_remote:
        is_own = value is None or isinstance(value, list) or _OWN_ENDPOINT.fullmatch(str(value))
        return "" if is_own else SENDS
    return ""
