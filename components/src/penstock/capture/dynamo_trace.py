"""Parses Dynamo's request trace: one record of the schema `dynamo.request.trace.v1`.

Source: lib/llm/src/request_trace/types.rs of Dynamo 1.6.1. The file sink writes each record into an
envelope `{"timestamp": ms since the writer started, "event": record}`; the sinks nats and stderr
write the record itself. Only the declared fields are decoded, so text and keys are never read.
"""

from __future__ import annotations

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


_DECODER = msgspec.json.Decoder(Record)


def is_dynamo_trace(line: bytes) -> bool:
    """Whether a line is a record of a request trace, of any version."""
    try:
        record = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return (record.event or record).schema.startswith("dynamo.request.trace.")


def parse_dynamo(line: bytes) -> RequestRecord | LeftOut:
    """Raises BrokenRecordError."""
    try:
        outer = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenRecordError(reason(error)) from None
    record = outer.event or outer
    if record.schema != SCHEMA:
        schema = "no schema" if not record.schema else "another schema"
        raise BrokenRecordError(f"the record has {schema}, not {SCHEMA}")
    if record.event_type != "request_end":
        return LeftOut.OTHER_EVENT
    if record.request is None:
        raise BrokenRecordError("the record has no `request`")
    return _request_record(record, record.request, outer.timestamp if outer.event else None)


def reason(error: Exception) -> str:
    """Why a line cannot be decoded. msgspec names places and types, never values."""
    if isinstance(error, msgspec.ValidationError):
        return f"the record has a wrong field: {error}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return f"invalid JSON: {error}"


def _request_record(
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
