"""The vocabulary that the parsers of gpt-oss need in the frontends. Pure; `adapt` calls it."""

from __future__ import annotations

from pathlib import Path

from penstock.manifests import flags
from penstock.manifests.deployment import Deployment

PARSER_FLAGS = ("--dyn-reasoning-parser", "--dyn-tool-call-parser")
HARMONY_PARSERS = ("gpt_oss", "harmony")
VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
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


def variables(vocabulary: Path | None) -> dict[str, str]:
    """What the frontends get; none without the installed vocabulary."""
    return {} if vocabulary is None else {VARIABLE: str(vocabulary)}
