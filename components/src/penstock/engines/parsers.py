"""Have every launch parsed by the parser of the engine that will run it.

`up` does this before a mocker takes an engine's place: a flag that the engine would refuse is
refused here too. One child process parses the whole batch.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.engines.at_start import refusals_at_start
from penstock.errors import LaunchError, MissingToolError, Problem
from penstock.manifests.deployment import Launch

TIME_LIMIT_S = 60.0  # the child needs about 1 s; a cold disk cache has taken 10 s
CHILD = (sys.executable, "-P", "-m", "penstock.engines.parse_child")
MODULES = ("dynamo.frontend", "dynamo.mocker", "dynamo.trtllm", "dynamo.vllm")


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Accepted: ``settings`` by the names the engine's own configuration object uses (vLLM's own
    arguments under ``engine_args``); ``warnings``: what the parser said, deprecations for one."""

    component: str
    settings: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NotParsed:
    """Neither accepted nor refused; ``reason`` completes "not checked: …"."""

    component: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The engine would end with this."""

    component: str
    problem: Problem
    engine_message: str
    """The engine's own words: they may name the flag or option at fault."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the child says of one launch."""

    outcome: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    reason: str = ""
    warnings: Sequence[str] = ()
    flags: Sequence[str] = ()


Verdict = Parsed | NotParsed | Refused
Ask = Callable[[Sequence[Launch]], Sequence[Answer]]


def ask_child(launches: Sequence[Launch], *, time_limit_s: float = TIME_LIMIT_S) -> list[Answer]:
    """Have a process of its own parse ``launches``; MissingToolError when it cannot."""
    try:
        # Dynamo's logging leaves a file in the temporary folder at each import.
        with tempfile.TemporaryDirectory(prefix="penstock-parse-") as folder:
            child = subprocess.run(
                CHILD,
                input=question(launches),
                check=False,
                capture_output=True,
                text=True,
                timeout=time_limit_s,
                env={**child_env(), "TMPDIR": folder},
                start_new_session=True,  # Ctrl-C is for penstock, which drains; not for this
            )
    except subprocess.TimeoutExpired as error:
        raise MissingToolError(
            f"Dynamo's parsers did not answer within {time_limit_s:g} s"
        ) from error
    if child.returncode != 0:
        last = child.stderr.strip().rsplit("\n", 1)[-1]
        raise MissingToolError(f"Dynamo's parsers do not run in this environment: {last}")
    return answers(child.stdout)


def parse_launches(
    launches: Sequence[tuple[str, Launch]], *, ask: Ask = ask_child
) -> tuple[Parsed | NotParsed, ...]:
    """One result a launch, in order. LaunchError carries a problem for every refused launch."""
    verdicts = judge_launches(launches, ask=ask)
    if refused := [v for v in verdicts if isinstance(v, Refused)]:
        raise LaunchError(*(r.problem for r in refused))
    return tuple(v for v in verdicts if not isinstance(v, Refused))


def judge_launches(
    launches: Sequence[tuple[str, Launch]], *, ask: Ask = ask_child
) -> tuple[Verdict, ...]:
    """As `parse_launches`, with the refusals among the results."""
    parsable = [launch for _, launch in launches if launch.module in MODULES]
    found = iter(ask(parsable) if parsable else ())
    return tuple(
        _verdict(name, launch, next(found))
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
        reason = f"{launch.argv[0] if launch.argv else 'an empty command'} is no Dynamo module"
    return NotParsed(component=name, reason=reason)


def question(launches: Sequence[Launch]) -> str:
    """The line that `parse_child` reads."""
    return json.dumps([_launch_in_json(launch) for launch in launches]) + "\n"


def answers(line: str) -> list[Answer]:
    """The line that `parse_child` writes."""
    return [Answer(**fields) for fields in json.loads(line)]


def _launch_in_json(launch: Launch) -> dict[str, Any]:
    return {
        "module": launch.module,
        "arguments": launch.arguments,
        "env": dict(launch.env),
        "files": dict(launch.files),
        "cwd": launch.cwd or "/",
    }


def child_env() -> dict[str, str]:
    """This machine's variables without those a parser reads: the pod will not have them."""
    return {name: value for name, value in os.environ.items() if not _read_by_parsers(name)}


def _read_by_parsers(name: str) -> bool:
    return name.startswith(("DYN_", "VLLM_", "NATS_", "ETCD_", "MODEL_EXPRESS", "HF_", "TLLM_"))


def _verdict(name: str, launch: Launch, answer: Answer) -> Verdict:
    if answer.outcome == "unknown":
        return NotParsed(component=name, reason=answer.reason)
    if answer.outcome == "refused":
        return _refusal(name, launch, answer)
    if texts := refusals_at_start(launch, answer.settings):
        text = "; ".join(texts)
        problem = _problem(name, launch, text, ())
        return Refused(component=name, problem=problem, engine_message=text)
    return Parsed(component=name, settings=answer.settings, warnings=tuple(answer.warnings))


def _refusal(name: str, launch: Launch, answer: Answer) -> Refused | NotParsed:
    if piece := _unresolved_piece(launch, answer.text):
        reason = f"only the cluster knows the value of {piece}"
        return NotParsed(component=name, reason=reason)
    text = _naming_variables(launch, answer.text)
    problem = _problem(name, launch, text, answer.flags)
    return Refused(component=name, problem=problem, engine_message=text)


def _naming_variables(launch: Launch, text: str) -> str:
    """Put `DYN_X='abc'` before a message that quotes the value of a variable but names no flag."""
    if "argument " in text:
        return text
    named = [f"{name}={value!r}" for name, value in launch.env.items() if repr(value) in text]
    return ": ".join([*named, text])


def _unresolved_piece(launch: Launch, text: str) -> str | None:
    """The word of the launch that the parser stumbled over although its value is not known here."""
    if not launch.unresolved:
        return None
    words = [word for word in (*launch.argv, *launch.env.values()) if re.search(r"[$`]", word)]
    values = [word.partition("=")[2] if word.startswith("-") else word for word in words]
    return next((value for value in values if value and value in text), None)


def _problem(name: str, launch: Launch, text: str, flags: Sequence[str]) -> Problem:
    message = f"{launch.module} refuses: {' '.join(text.split()).rstrip('.')}"
    return Problem(message=message, place=launch.place or name, fix=_fix(launch, text, flags))


def _fix(launch: Launch, text: str, flags: Sequence[str]) -> str:
    if "ends the process" in text:
        return "remove it"
    if unknown := re.search(r"[Uu]n(?:recognized|known) arguments?[^-]*(--?[\w.-]+)", text):
        near = difflib.get_close_matches(unknown[1], flags, n=1, cutoff=0.7)
        return f"perhaps you meant {near[0]}" if near else f"remove {unknown[1]}"
    if named := re.search(r"argument (-[^:]+):", text):
        return f"give {named[1].split('/')[0]} a value that {launch.module} takes"
    return "change the component's command line or environment as the message says"
