"""The arguments of frontends and of a graph's own mockers on this machine; `adapt` calls it.

A mocker can take its step times from files of its image, or from AISimulate. Without them it exits
at startup; without these flags it computes step times with its own formulas.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from penstock.engines.flags import flag_table
from penstock.manifests import flags
from penstock.manifests.deployment import Deployment, Launch

FRONTEND = "dynamo.frontend"
# `up` serves plain HTTP: these flags of the frontend are ignored.
DROPPED = {
    "--tls-cert-path": "TLS",
    "--tls-key-path": "TLS",
    "--tls-client-ca-cert-path": "TLS",
}
SWITCHES = {
    "--kserve-grpc-server": "the KServe gRPC server",
    "--interactive": "the interactive chat",
}
CHAT_PROCESSOR = "--dyn-chat-processor"
ROUTER_MODE, ROUTER_VARIABLE = "--router-mode", "DYN_ROUTER_MODE"


def frontend_arguments(
    arguments: tuple[str, ...], env: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments without those that have no place on a laptop, and one line for each change."""
    arguments, notes = _without_chat_processor(arguments)
    for flag, what in (DROPPED | SWITCHES).items():
        if flags.flag_value(arguments, flag) is not None or flag in arguments:
            notes.append(f"ignoring {flag} ({what}) on this machine")
    arguments = flags.without_flags(arguments, *DROPPED)
    arguments = tuple(part for part in arguments if part not in SWITCHES)
    if (flags.flag_value(arguments, ROUTER_MODE) or env.get(ROUTER_VARIABLE)) == "direct":
        notes.append(
            "using --router-mode kv instead of direct, which serves only requests that name their "
            "worker, as those of an endpoint picker do"
        )
        arguments = (*flags.without_flags(arguments, ROUTER_MODE), ROUTER_MODE, "kv")
    return arguments, tuple(notes)


def _without_chat_processor(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """Dynamo's own chat processor, whose parser does not know the flags of an engine's."""
    engine = flags.flag_value(arguments, CHAT_PROCESSOR)
    if engine not in ("vllm", "sglang"):
        return arguments, []
    notes = ["using Dynamo's chat processor instead of the engine's"]
    table = flag_table(FRONTEND)
    kept: list[str] = []
    ignored: list[str] = []
    for flag, words in flags.by_flag(flags.without_flags(arguments, CHAT_PROCESSOR)):
        if flag and table is not None and table.find(flag) is None:
            ignored.append(flag)
        else:
            kept += words
    if ignored:
        notes.append(f"ignoring {', '.join(ignored)}, which only {engine}'s chat processor reads")
    return tuple(kept), notes


MOCKER = "dynamo.mocker"
FILE_FLAGS = ("planner-profile-data", "extra-engine-args", "response-replay-trace-path")
# Both spellings of the flags that the installed mocker passes to AISimulate.
AISIMULATE = ("ais-", "aic-")

Exists = Callable[[str], bool]


def exists(path: str) -> bool:
    return Path(path).exists()


def mocker_arguments(
    launch: Launch, arguments: tuple[str, ...], exists: Exists
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments that have an effect here, and one line for each change.

    ``exists``: whether a path exists on this machine.
    """
    kept: list[str] = []
    notes: list[str] = []
    simulated: list[str] = []
    for flag, words in flags.by_flag(arguments):
        name = _name(flag)
        if name.startswith(AISIMULATE):
            simulated.append(flag)
        elif name in FILE_FLAGS and (missing := _missing(launch, words, exists)):
            notes.append(
                f"ignoring {flag}: {missing} is neither in the manifest nor on this machine"
            )
        else:
            kept += words
    if simulated:
        listed = ", ".join(simulated)
        notes.append(f"ignoring {listed}: AISimulate is not installed with this mocker")
    if len(kept) < len(arguments):
        notes.append("the step times are the mocker's own, not those of the graph's GPUs")
    return tuple(kept), tuple(notes)


def _name(flag: str) -> str:
    """The full name of a flag, which may be abbreviated."""
    table = flag_table(MOCKER)
    known = table.find(flag) if table and flag else None
    return known.name if known else flag.lstrip("-")


def _missing(launch: Launch, words: list[str], exists: Exists) -> str:
    """The path in the value of a flag, if there is nothing at it; else empty."""
    return next((path for path in _paths(words) if not _is_there(launch, path, exists)), "")


def _paths(words: list[str]) -> Iterator[str]:
    yield from (path for path in (words[0].partition("=")[2], *words[1:]) if path)


def _is_there(launch: Launch, path: str, exists: Exists) -> bool:
    absolute = posixpath.normpath(posixpath.join(launch.cwd or "/", path))
    return absolute in launch.files or exists(absolute)


# The parsers of gpt-oss need a vocabulary in the frontends.
PARSER_FLAGS = ("--dyn-reasoning-parser", "--dyn-tool-call-parser")
HARMONY_PARSERS = ("gpt_oss", "harmony")
HARMONY_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
DOWNLOADED = (
    "the parsers gpt_oss and harmony download their vocabulary at first use; without it "
    "reasoning and tool calls are lost. Offline, run `penstock tools env install harmony`."
)


def uses_harmony(deployment: Deployment) -> bool:
    """Whether a worker names a parser that needs the vocabulary."""
    return any(
        flags.flag_value(launch.arguments, flag) in HARMONY_PARSERS
        for component in deployment.components
        for launch in component.launches
        for flag in PARSER_FLAGS
    )


def harmony_variables(vocabulary: Path | None) -> dict[str, str]:
    """What the frontends get; none without the installed vocabulary."""
    return {} if vocabulary is None else {HARMONY_VARIABLE: str(vocabulary)}
