"""Parses each launch with the parser of the engine that will run it.

`up` calls this before it starts a mocker instead of an engine, so that it rejects a flag that the
engine would reject. One child process parses all launches.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.engines.parser_messages import fix_of, names_an_argument, quoted_in
from penstock.errors import MissingToolError, Problem
from penstock.files import only_penstock
from penstock.manifests.deployment import Launch
from penstock.strict_yaml.loader import load, load_json

TIME_LIMIT_S = 60.0  # the child needs about 1 s; a cold disk cache has taken 10 s
ARGUMENTS = ("-P", "-m", "penstock.engines.parse_child")
MODULES = (
    *("dynamo.frontend", "dynamo.mocker", "dynamo.trtllm", "dynamo.vllm"),
    "penstock.llamacpp",
)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A launch that the engine accepts."""

    component: str
    # By the names of the engine's configuration object; vLLM's own arguments under `engine_args`.
    settings: Mapping[str, Any]
    # What the parser logged, such as deprecations.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NotParsed:
    """A launch that cannot be parsed on this machine."""

    component: str
    # Completes "not checked: …".
    reason: str


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A launch with which the engine would exit."""

    component: str
    problem: Problem
    # The engine's message, which may name the flag or option at fault.
    engine_message: str


@dataclass(frozen=True, kw_only=True)
class ParserOutput:
    """What the child process reports about one launch."""

    # "parsed", "rejected" or "unknown"
    outcome: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    # The parser's message, if it rejects the launch.
    text: str = ""
    # Why the launch cannot be parsed here, if the outcome is unknown.
    reason: str = ""
    # The flag that makes the process print something and exit, such as --help.
    exiting_flag: str = ""
    warnings: Sequence[str] = ()
    # Every flag that the parser knows.
    flags: Sequence[str] = ()


ParseResult = Parsed | NotParsed | Rejected
RunParsers = Callable[[Sequence[Launch]], Sequence[ParserOutput]]


def run_child(
    launches: Sequence[Launch], *, time_limit_s: float = TIME_LIMIT_S, python: str = sys.executable
) -> list[ParserOutput]:
    """Parse ``launches`` in a child process; MissingToolError if it fails or takes too long.

    ``python``: with Dynamo; it need not have penstock.
    """
    try:
        # Dynamo's logging leaves a file in the temporary folder at each import.
        with tempfile.TemporaryDirectory(prefix="penstock-parse-") as folder:
            env = {**child_env(), "TMPDIR": folder}
            if python != sys.executable:
                env["PYTHONPATH"] = str(only_penstock(Path(folder) / "path"))
            child = subprocess.run(
                (python, *ARGUMENTS),
                input=encode_launches(launches),
                check=False,
                capture_output=True,
                text=True,
                timeout=time_limit_s,
                env=env,
                start_new_session=True,  # Ctrl-C is for penstock, which drains; not for this
            )
    except subprocess.TimeoutExpired as error:
        raise MissingToolError(
            f"Dynamo's parsers did not respond within {time_limit_s:g} s"
        ) from error
    if child.returncode != 0:
        last = child.stderr.strip().rsplit("\n", 1)[-1]
        raise MissingToolError(f"Dynamo's parsers do not run in this environment: {last}")
    return decode_outputs(child.stdout)


def check_launches(
    launches: Sequence[tuple[str, Launch]], *, run: RunParsers = run_child
) -> tuple[ParseResult, ...]:
    """One result per launch, in order."""
    parsable = [launch for _, launch in launches if launch.module in MODULES]
    outputs = iter(run(parsable) if parsable else ())
    return tuple(
        _result(name, launch, next(outputs))
        if launch.module in MODULES
        else _no_parser(name, launch)
        for name, launch in launches
    )


def _no_parser(name: str, launch: Launch) -> NotParsed:
    if launch.module == "dynamo.sglang":
        reason = "SGLang's parser needs SGLang itself, which is not installed here"
    elif launch.module is not None:
        reason = f"penstock has no parser for {launch.module}"
    else:
        program = launch.argv[0] if launch.argv else "an empty command"
        reason = f"{program} is not a Dynamo module"
    return NotParsed(component=name, reason=reason)


def encode_launches(launches: Sequence[Launch]) -> str:
    """The line that `parse_child` reads."""
    return json.dumps([launch_in_json(launch) for launch in launches]) + "\n"


def decode_outputs(line: str) -> list[ParserOutput]:
    """The line that `parse_child` writes."""
    return [ParserOutput(**fields) for fields in json.loads(line)]


def launch_in_json(launch: Launch) -> dict[str, Any]:
    """What a child process needs of a launch."""
    return {
        "module": launch.module,
        "arguments": launch.arguments,
        "env": dict(launch.env),
        "files": dict(launch.files),
        "cwd": launch.cwd or "/",
    }


def child_env() -> dict[str, str]:
    """This machine's variables without those that a parser reads: the pod does not have them."""
    return {name: value for name, value in os.environ.items() if not _is_read_by_parsers(name)}


def _is_read_by_parsers(name: str) -> bool:
    return name.startswith(("DYN_", "VLLM_", "NATS_", "ETCD_", "MODEL_EXPRESS", "HF_", "TLLM_"))


def _result(name: str, launch: Launch, output: ParserOutput) -> ParseResult:
    if output.outcome == "unknown":
        return NotParsed(component=name, reason=output.reason)
    if output.outcome == "rejected":
        return _rejected(name, launch, output)
    if errors := [*_startup_errors(launch, output.settings)]:
        text = "; ".join(f"argument {flag}: {message}" for flag, message in errors)
        fix = f"Set {errors[0][0]} to a value that {launch.module} accepts."
        problem = _problem(name, launch, text, fix)
        return Rejected(component=name, problem=problem, engine_message=text)
    return Parsed(component=name, settings=output.settings, warnings=tuple(output.warnings))


def _rejected(name: str, launch: Launch, output: ParserOutput) -> Rejected | NotParsed:
    if piece := quoted_in(output.text, _unresolved_values(launch)):
        reason = f"only the cluster knows the value of {piece}"
        return NotParsed(component=name, reason=reason)
    if output.exiting_flag:
        text = f"argument {output.exiting_flag}: it ends the process before it serves"
        fix = f"Remove {output.exiting_flag}."
    else:
        text = _with_variables(launch, output.text)
        fix = fix_of(text, launch.module or "", output.flags)
    return Rejected(component=name, problem=_problem(name, launch, text, fix), engine_message=text)


def _with_variables(launch: Launch, text: str) -> str:
    """The message, preceded by `DYN_X='abc'` if it quotes a variable's value and names no flag."""
    if names_an_argument(text):
        return text
    named = [f"{name}={value!r}" for name, value in launch.env.items() if repr(value) in text]
    return ": ".join([*named, text])


def _unresolved_values(launch: Launch) -> list[str]:
    """The values of the launch that only the cluster knows; they keep their spelling here."""
    if not launch.unresolved:
        return []
    words = [word for word in (*launch.argv, *launch.env.values()) if re.search(r"[$`]", word)]
    return [word.partition("=")[2] if word.startswith("-") else word for word in words]


def _problem(name: str, launch: Launch, text: str, fix: str) -> Problem:
    message = f"{launch.module} rejects: {' '.join(text.split()).rstrip('.')}"
    return Problem(message=message, place=launch.place or name, fix=fix)


JSON_FLAGS = {
    "override_engine_args": "--override-engine-args",
    "model_loader_extra_config": "--model-loader-extra-config",
}
FILE_FLAG = "--extra-engine-args"


def _startup_errors(launch: Launch, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each flag of a TensorRT-LLM worker that its parser keeps as text and that the worker cannot
    read (dynamo/trtllm/workers/llm_worker.py), and why."""
    if launch.module != "dynamo.trtllm":
        return
    for name, flag in JSON_FLAGS.items():
        if message := _not_an_object(settings.get(name)):
            yield flag, message
    path = settings.get("extra_engine_args") or ""
    at = posixpath.normpath(posixpath.join(launch.cwd or "/", path))
    if message := _not_a_mapping(path, launch.files.get(at)):
        yield FILE_FLAG, message


def _not_an_object(text: Any) -> str:
    if not text:
        return ""
    try:
        parsed = load_json(text)
    except ValueError as error:
        return f"{text!r} is not JSON ({error})"
    return "" if isinstance(parsed, dict) else f"{text!r} is not a JSON object"


def _not_a_mapping(path: str, text: str | None) -> str:
    if text is None:
        return ""
    try:
        content = load(text)
    except yaml.YAMLError as error:
        return f"{path} is not YAML ({' '.join(str(error).split())})"
    if isinstance(content, dict):
        return ""
    return f"{path} must contain a mapping, got {type(content).__name__}"
