"""Recognizes files that are often passed by mistake."""

from __future__ import annotations

import msgspec

SUPPORTED = (
    "Use a request trace of Dynamo or an access log of Envoy. If the file is one, name its "
    "format with --format."
)


class _Keys(msgspec.Struct):
    timestamp: float | None = None
    input_length: int | None = None
    hash_ids: list[int] | None = None


def other_kind(line: bytes) -> tuple[str, str]:
    """(message, fix) for the first line of a file of an unknown format."""
    if line.startswith(b"TIMESTAMP,ContextTokens"):
        fix = "Name it in a workload file: `trace: {format: azure, file: FILE}`."
        return "is already a workload trace", fix
    try:
        keys = msgspec.json.decode(line, type=_Keys)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "is neither a request trace of Dynamo nor an access log of Envoy", SUPPORTED
    if keys.timestamp is not None and keys.input_length is not None:
        fix = "Name it in a workload file: `trace: {format: mooncake, file: FILE}`."
        return "is already a workload trace", fix
    return "is JSON of an unknown kind", SUPPORTED
