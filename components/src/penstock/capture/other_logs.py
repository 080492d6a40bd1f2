"""Recognizes files that are often passed by mistake."""

from __future__ import annotations

import msgspec

SUPPORTED = (
    "Use a request trace of Dynamo or an access log of Envoy. If the file is one, name its "
    "format with --format."
)


WRAPPED = "Extract the lines of the container, for example with `kubectl logs POD > FILE`."


class _Keys(msgspec.Struct):
    log: str | None = None
    timestamp: float | None = None
    input_length: int | None = None
    hash_ids: list[int] | None = None


def other_kind(line: bytes) -> tuple[str, str]:
    """(message, fix) for the first line of a file of an unknown format."""
    if line.startswith(b"TIMESTAMP,ContextTokens"):
        fix = "Name it in a workload file: `trace: {format: azure, file: FILE}`."
        return "is already a workload trace", fix
    start = line.find(b'{"')
    if start > 0 and _is_json(line[start:]):
        fix = "Write it without them: use no --prefix and no --timestamps. " + WRAPPED
        return "has other text before the JSON of each line", fix
    try:
        keys = msgspec.json.decode(line, type=_Keys)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "is neither a request trace of Dynamo nor an access log of Envoy", SUPPORTED
    if keys.log is not None:
        return "is a log of Docker, with the lines of the container in the key `log`", WRAPPED
    if keys.timestamp is not None and keys.input_length is not None:
        fix = "Name it in a workload file: `trace: {format: mooncake, file: FILE}`."
        return "is already a workload trace", fix
    return "is JSON of an unknown kind", SUPPORTED


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
