"""Parses the lines of logs: Dynamo's request trace, and Envoy's access log in JSON or as text.

Only the declared fields are decoded, so text and keys are never read. The query of a path is cut
off before the path is compared, and nothing of it is kept.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from penstock.capture.record import (
    BrokenRecordError,
    LeftOut,
    RequestRecord,
    checked_time,
    checked_tokens,
    prefixes_of,
    trace_block_tokens,
)

NOT_DECODED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# lib/llm/src/request_trace/types.rs of Dynamo 1.6.1. The file sink writes each record into an
# envelope `{"timestamp": ms since the writer started, "event": record}`; the sinks nats and stderr
# write the record itself.
SCHEMA = "dynamo.request.trace.v1"
LARGEST_BLOCK = 65_536  # tokens


class _Replay(msgspec.Struct):
    trace_block_size: int
    input_length: int
    input_sequence_hashes: list[int]


class _Workers(msgspec.Struct):
    prefill_worker_id: int | None = None
    decode_worker_id: int | None = None


class _Request(msgspec.Struct):
    request_id: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    request_received_ms: int | None = None
    total_time_ms: float | None = None
    worker: _Workers | None = None
    replay: _Replay | None = None


class Record(msgspec.Struct):
    """A record, or the envelope of one."""

    schema: str = ""
    event_type: str = ""
    event_time_unix_ms: int = 0
    request: _Request | None = None
    timestamp: float | None = None
    event: Record | None = None


_RECORDS = msgspec.json.Decoder(Record)


def is_dynamo_trace(line: bytes) -> bool:
    """Whether a line is a record of a request trace, of any version."""
    try:
        record = _RECORDS.decode(line)
    except NOT_DECODED:
        return False
    return (record.event or record).schema.startswith("dynamo.request.trace.")


def parse_dynamo(line: bytes) -> RequestRecord | LeftOut:
    """Raises BrokenRecordError."""
    try:
        outer = _RECORDS.decode(line)
    except NOT_DECODED as error:
        raise BrokenRecordError(reason(error)) from None
    record = outer.event or outer
    if record.schema != SCHEMA:
        schema = "no schema" if not record.schema else "another schema"
        raise BrokenRecordError(f"the record has {schema}, not {SCHEMA}")
    if record.event_type != "request_end":
        return LeftOut.OTHER_EVENT
    if record.request is None:
        raise BrokenRecordError("the record has no `request`")
    return _of_dynamo(record, record.request, outer.timestamp if outer.event else None)


def reason(error: Exception) -> str:
    """Why a line cannot be decoded. msgspec names places and types, never values."""
    if isinstance(error, msgspec.ValidationError):
        return f"the record has a wrong field: {error}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return f"invalid JSON: {error}"


def _of_dynamo(
    record: Record, request: _Request, writer_ms: float | None
) -> RequestRecord | LeftOut:
    end_ms = checked_time(record.event_time_unix_ms, "event_time_unix_ms")
    arrival_ms = end_ms - (request.total_time_ms or 0.0)
    if request.request_received_ms is not None:
        arrival_ms = checked_time(request.request_received_ms, "request_received_ms")
    replay = request.replay
    tokens = checked_tokens(replay.input_length if replay else request.input_tokens, "input_length")
    if not tokens or request.output_tokens is None:
        return LeftOut.NO_LENGTHS
    prefixes, block_tokens = None, 1
    if replay is not None:
        block_tokens = replay.trace_block_size
        if not 1 <= block_tokens <= LARGEST_BLOCK:
            raise BrokenRecordError(f"trace_block_size is {block_tokens}")
        try:
            prefixes = prefixes_of(replay.input_sequence_hashes, block_tokens, tokens)
        except OverflowError:
            raise BrokenRecordError("a prefix hash is no unsigned 64-bit integer") from None
    worker = request.worker or _Workers()
    ids = (worker.prefill_worker_id, worker.decode_worker_id)
    fields = {} if prefixes is None else {"prefixes": prefixes}
    return RequestRecord(
        key=request.request_id,
        arrival_ms=arrival_ms,
        end_ms=end_ms,
        writer_ms=writer_ms,
        input_tokens=tokens,
        output_tokens=checked_tokens(request.output_tokens, "output_tokens"),
        cached_tokens=checked_tokens(request.cached_tokens, "cached_tokens"),
        block_tokens=trace_block_tokens(block_tokens),
        workers=tuple(id_ for id_ in ids if id_ is not None),
        **fields,
    )


# Envoy Gateway 1.9, user guide "Proxy Access Logs"; Envoy, "Access logging"; Envoy AI Gateway for
# the names of token counts.
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


_ENTRIES = msgspec.json.Decoder(_Entry)


def is_access_log(line: bytes) -> bool:
    """Whether a line has one of the two formats."""
    if not line.startswith(b"{"):
        return _TEXT.match(line) is not None
    try:
        _ENTRIES.decode(line)
    except NOT_DECODED:
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
            entry = _ENTRIES.decode(line)
        except NOT_DECODED as error:
            raise BrokenRecordError(reason(error)) from None
    elif (match := _TEXT.match(line)) is not None:
        start, method, path, code, duration, request_id = (
            match[name].decode("utf-8", "replace")
            for name in ("start", "method", "path", "code", "duration", "id")
        )
        entry = _Entry(start, method, code, duration, path=path, request_id=request_id)
    else:
        raise BrokenRecordError("the line is neither JSON nor Envoy's default text format")
    return _of_envoy(entry)


def _of_envoy(entry: _Entry) -> RequestRecord | LeftOut:
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
    except NOT_DECODED:
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
    except NOT_DECODED:
        return False
    return True
