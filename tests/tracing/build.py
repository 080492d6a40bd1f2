"""Spans and records as Dynamo 1.6.1 sends them, for requests with given times."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.tracing.requests import TracedRequest, requests_of
from penstock.tracing.spans import decode
from penstock.tracing.store import Kind, Message

START_NS = 1_795_746_000_000_000_000


class Trace:
    """The messages of one disaggregated request; all times in ms from ``at_ms``."""

    def __init__(self, request_id: str, at_ms: float = 0.0, **changes: Any) -> None:
        times_ms = {"prefill_ms": 10.0, "transfer_ms": 5.0, "decode_ms": 60.0, "response_ms": 0.5}
        tokens = {"cached": 288, "input": 314, "output": 20}
        usual = {"client": "", "worker": "11", "skew_ms": 0.0, "kv_router": True, "mocker": False}
        # `read`: (end in ms, blocked in ms) of the client.
        rest = {"outcome": "success", "read": None}
        self.id, self.at_ms = request_id, at_ms
        self.values: dict[str, Any] = {**times_ms, **tokens, **usual, **rest, **changes}

    def messages(self, *, record: bool = True) -> list[Message]:
        kind = Kind.MOCKER_TRACES if self.values["mocker"] else Kind.TRACES
        traces = Message(kind=kind, body=self._spans().SerializeToString())
        logs = Message(kind=Kind.LOGS, body=self._logs().SerializeToString())
        messages = [traces, logs] if record else [traces]
        if self.values["read"] is not None:
            end_ms, blocked_ms = self.values["read"]
            end_ns = START_NS + int((self.at_ms + end_ms) * 1e6)
            row = {"span_id": self._parent(), "end_ns": end_ns, "blocked_ms": blocked_ms}
            messages.append(Message(kind=Kind.CLIENT_READS, body=json.dumps([row]).encode()))
        return messages

    def _parent(self) -> str:
        """Span ID of the request adapter, in hex."""
        return self._key("adapter").hex()

    def _spans(self) -> ExportTraceServiceRequest:
        v = self.values
        token = 2.0 + v["prefill_ms"] + v["transfer_ms"]
        done = token + v["decode_ms"]
        export = ExportTraceServiceRequest()
        root = {
            "request_id": self.id,
            "x_request_id": v["client"],
            "model": "m",
            "input_tokens": str(v["input"]),
            "output_tokens": str(v["output"]),
            "ttft_ms": f"{token:.2f}",
            "avg_itl_ms": "3.0",
            "request.outcome": v["outcome"],
            "prefill_worker_id": v["worker"],
            "decode_worker_id": "22",
        }
        self._span(export, "http-request", "adapter", 0, done + v["response_ms"], **root)
        for phase, sent, until, worker in (
            ("Prefill", 2.0, 2.0 + v["prefill_ms"], v["worker"]),
            ("Decode", 3.0 + v["prefill_ms"], done, "22"),
        ):
            route, name = {"worker_id": worker}, "router.route_request"
            if v["kv_router"]:
                self._span(export, "kv_router.select_worker", "http-request", sent - 0.5, sent)
                route |= {"phase": phase, "overlap_blocks": "9"}
                name = "kv_router.route_request"
            self._span(export, name, "http-request", sent, until, key=phase, **route)
            start = sent + 0.2 - v["skew_ms"]
            self._span(export, "handle_payload", phase, start, until - 0.1, instance_id=worker)
        return export

    def _span(
        self,
        export: ExportTraceServiceRequest,
        name: str,
        parent: str,
        start_ms: float,
        end_ms: float,
        key: str = "",
        **attributes: str,
    ) -> None:
        span = export.resource_spans.add().scope_spans.add().spans.add(name=name)
        span.trace_id = self.id.encode().ljust(16, b"0")[:16]
        span.span_id = self._key(key or name + str(start_ms))
        if parent:
            span.parent_span_id = self._key(parent if parent != "http-request" else parent + "0")
        span.start_time_unix_nano = START_NS + int((self.at_ms + start_ms) * 1e6)
        span.end_time_unix_nano = START_NS + int((self.at_ms + end_ms) * 1e6)
        for attribute, value in attributes.items():
            span.attributes.add(key=attribute).value.string_value = value

    def _key(self, text: str) -> bytes:
        return f"{hash((self.id, text)) & (2**64 - 1):016x}".encode()[:8] + text.encode()[:8]

    def _logs(self) -> ExportLogsServiceRequest:
        export = ExportLogsServiceRequest()
        log = export.resource_logs.add().scope_logs.add().log_records.add()
        request = {
            "request_id": self.id,
            "cached_tokens": self.values["cached"],
            "prefill_time_ms": self.values["prefill_ms"],
            "queue_depth": 0,
        }
        event = {"schema": "dynamo.request.trace.v1", "request": request}
        log.attributes.add(key="payload").value.string_value = json.dumps(event)
        return export


def requests(*traces: Trace, record: bool = True) -> tuple[TracedRequest, ...]:
    messages = [message for trace in traces for message in trace.messages(record=record)]
    return requests_of(decode(messages))


def peers(count: int = 8, **changes: Any) -> list[Trace]:
    """Usual requests, one after the other."""
    return [Trace(f"peer-{i}", at_ms=1000.0 * i, **changes) for i in range(count)]
