"""The arguments of a frontend on this machine. Pure; `adapt` calls it."""

from __future__ import annotations

from penstock.manifests import flags

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


def local_arguments(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments without those that have no place on a laptop, and one line for each change."""
    notes = []
    if flags.flag_value(arguments, "--dyn-chat-processor") in ("vllm", "sglang"):
        notes.append("using Dynamo's chat processor instead of the engine's")
        arguments = flags.without_flags(arguments, "--dyn-chat-processor")
    for flag, what in (DROPPED | SWITCHES).items():
        if flags.flag_value(arguments, flag) is not None or flag in arguments:
            notes.append(f"ignoring {flag} ({what}) on this machine")
    arguments = flags.without_flags(arguments, *DROPPED)
    return tuple(part for part in arguments if part not in SWITCHES), tuple(notes)
