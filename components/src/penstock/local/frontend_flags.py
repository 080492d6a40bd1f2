"""The arguments of a frontend on this machine. Pure; `adapt` calls it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engines.flags import flag_table
from penstock.manifests import flags

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


def local_arguments(
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
