"""Spans and request records, decoded from OTLP messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.tracing.store import Kind, Message

# Attributes that the tracing library adds; they describe the code, not the request.
_CODE = ("code.", "thread.", "busy_ns", "idle_ns", "target", "level")


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One span; times in ns since the epoch, by the clock of the process that sent it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str]
    is_of_mocker: bool
    """The process that sent it simulates the engine."""


@dataclass(frozen=True, kw_only=True)
class ClientRead:
    """How a client read its response, as the request adapter measured it."""

    end_ns: int
    """When all of the response was sent, ns since the epoch."""
    blocked_ms: float
    """Time in which the buffers towards the client were full."""


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """What the recorded messages contain."""

    spans: tuple[Span, ...]
    records: Mapping[str, Mapping[str, Any]]
    """By request ID: `request` of Dynamo's request trace, schema dynamo.request.trace.v1."""
    client_reads: Mapping[str, ClientRead]
    """By the parent of the request's `http-request` span."""
    unreadable: int
    """Messages that cannot be decoded."""


def decode(messages: Iterable[Message]) -> Decoded:
    """Everything in the messages; one that cannot be decoded is counted and skipped."""
    from google.protobuf.message import DecodeError

    spans: list[Span] = []
    records: dict[str, Mapping[str, Any]] = {}
    client_reads: dict[str, ClientRead] = {}
    unreadable = 0
    for message in messages:
        try:
            if message.kind in (Kind.TRACES, Kind.MOCKER_TRACES):
                spans += _spans(message)
            elif message.kind is Kind.LOGS:
                records.update(_records(message.body))
            elif message.kind is Kind.CLIENT_READS:
                client_reads.update(_client_reads(message.body))
            else:
                unreadable += 1
        except (DecodeError, msgspec.MsgspecError, UnicodeDecodeError):
            unreadable += 1
    return Decoded(
        spans=tuple(spans), records=records, client_reads=client_reads, unreadable=unreadable
    )


def _spans(message: Message) -> Iterator[Span]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for resource in ExportTraceServiceRequest.FromString(message.body).resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    service=service,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    attributes=_attributes(span.attributes),
                    is_of_mocker=message.kind is Kind.MOCKER_TRACES,
                )


class _ClientRead(msgspec.Struct):
    span_id: str
    end_ns: int
    blocked_ms: float


def _client_reads(body: bytes) -> Iterator[tuple[str, ClientRead]]:
    for row in msgspec.json.decode(body, type=list[_ClientRead]):
        yield row.span_id, ClientRead(end_ns=row.end_ns, blocked_ms=row.blocked_ms)


def _attributes(pairs: Iterable[Any]) -> dict[str, str]:
    attributes = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        if kind is not None and not pair.key.startswith(_CODE):
            attributes[pair.key] = str(getattr(pair.value, kind))
    return attributes


def _records(body: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
        for scope in resource.scope_logs:
            for log in scope.log_records:
                payload = _attributes(log.attributes).get("payload", "")
                request = _request(payload)
                if request is not None:
                    yield str(request["request_id"]), request


def _request(payload: str) -> Mapping[str, Any] | None:
    """`request` of a record; None for another log, and for a payload that was cut off."""
    try:
        event = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    request = event.get("request") if isinstance(event, dict) else None
    return request if isinstance(request, dict) and "request_id" in request else None
