"""Parses Envoy's access log: the default JSON of Envoy Gateway, or the default text of Envoy.

Sources: Envoy Gateway 1.9, user guide "Proxy Access Logs"; Envoy, "Access logging"; Envoy AI
Gateway for the names of token counts. Only the declared fields are decoded; the query of a path is
cut off before the path is compared, and nothing of it is kept.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from penstock.capture.dynamo_trace import reason
from penstock.capture.record import (
    BrokenRecordError,
    LeftOut,
    RequestRecord,
    checked_time,
    checked_tokens,
)

PATHS = ("/chat/completions", "/completions", "/responses", "/messages")
_TEXT = re.compile(
    rb'\[(?P<start>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+) \S+" (?P<code>\d+) \S+'
    rb"(?: [^\s\"]\S*)*? (?:\d+) (?:\d+) (?P<duration>\d+) \S+"
    rb'(?: "(?:[^"\\]|\\.)*"){2} "(?P<id>[^"]*)"'
)
_OWN_MESSAGE = re.compile(rb"\[\d{4}-\d\d-\d\d [\d:.]+\]\[\d+\]\[\w+\]")
_Number = int | float | str | None
SUPPORTED = (
    "Use a request trace of Dynamo or an access log of Envoy. If the file is one, name its "
    "format with --format."
)


WRAPPED = "Extract the lines of the container, for example with `kubectl logs POD > FILE`."


class _Entry(
    msgspec.Struct,
    rename={
        "origin_path": "x-envoy-origin-path",
        "request_id": "x-request-id",
        "genai_input": "gen_ai.usage.input_tokens",
        "genai_output": "gen_ai.usage.output_tokens",
        "genai_cached": "gen_ai.usage.cached_input_tokens",
    },
):
    start_time: str
    method: str
    response_code: _Number
    duration: _Number
    origin_path: str | None = None
    path: str | None = None
    request_id: str | None = None
    input_tokens: _Number = None
    output_tokens: _Number = None
    genai_input: _Number = None
    genai_output: _Number = None
    genai_cached: _Number = None


_DECODER = msgspec.json.Decoder(_Entry)


def is_access_log(line: bytes) -> bool:
    """Whether a line has one of the two formats."""
    if not line.startswith(b"{"):
        return _TEXT.match(line) is not None
    try:
        _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def is_own_message(line: bytes) -> bool:
    """Whether Envoy itself wrote the line; `kubectl logs` mixes both."""
    return _OWN_MESSAGE.match(line) is not None


def parse_envoy(line: bytes) -> RequestRecord | LeftOut:
    """Raises BrokenRecordError."""
    if is_own_message(line):
        return LeftOut.SERVER_MESSAGE
    if line.startswith(b"{"):
        try:
            entry = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BrokenRecordError(reason(error)) from None
    elif (match := _TEXT.match(line)) is not None:
        start, method, path, code, duration, request_id = (
            match[name].decode("utf-8", "replace")
            for name in ("start", "method", "path", "code", "duration", "id")
        )
        entry = _Entry(start, method, code, duration, path=path, request_id=request_id)
    else:
        raise BrokenRecordError("the line is neither JSON nor Envoy's default text format")
    return _request_record(entry)


def _request_record(entry: _Entry) -> RequestRecord | LeftOut:
    path = (entry.origin_path or entry.path or "").partition("?")[0].rstrip("/")
    if entry.method != "POST" or not path.endswith(PATHS):
        return LeftOut.OTHER_PATH
    if _number(entry.response_code, "response_code") != 200:
        return LeftOut.FAILED
    arrival_ms = _time(entry.start_time)
    request_id = entry.request_id if entry.request_id not in (None, "-", "") else None
    return RequestRecord(
        key=request_id or f"{entry.start_time} {entry.duration} {path}",
        arrival_ms=arrival_ms,
        end_ms=arrival_ms + (_number(entry.duration, "duration") or 0.0),
        input_tokens=_tokens(entry.input_tokens, entry.genai_input, "input_tokens"),
        output_tokens=_tokens(entry.output_tokens, entry.genai_output, "output_tokens"),
        cached_tokens=_tokens(None, entry.genai_cached, "cached_input_tokens"),
    )


def _time(text: str) -> float:
    """Milliseconds of an ISO 8601 time; one without a zone is UTC, as Envoy writes it."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BrokenRecordError("start_time is not an ISO 8601 time") from None
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return checked_time(aware.timestamp() * 1000, "start_time")


def _number(value: _Number, name: str) -> float | None:
    """Envoy writes `-`, or null, for a value that it does not have."""
    if value in (None, "-", ""):
        return None
    try:
        number = float(value or 0)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e12:
        raise BrokenRecordError(f"{name} is not a number of at least 0")
    return number


def _tokens(value: _Number, other: _Number, name: str) -> int | None:
    number = _number(value, name)
    number = _number(other, name) if number is None else number
    return None if number is None else checked_tokens(int(number), name)


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
