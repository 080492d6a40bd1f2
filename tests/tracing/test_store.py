"""The receiver stores what Dynamo sends; a truncated file loses only its last message."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.local.request_adapter import client_reads
from penstock.tracing.requests import is_recorded, load
from penstock.tracing.store import NAME, OLDER, Kind, Message, Receiver, Writer, read
from tests.tracing.build import Trace

PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    running = Receiver(tmp_path, "127.0.0.1")
    yield running
    running.stop()


def post(receiver: Receiver, path: str, body: bytes) -> int:
    return httpx.post(receiver.url + path, content=body, headers=PROTOBUF).status_code


def write(folder: Path, *messages: Message) -> Path:
    """The file of these messages."""
    writer = Writer(folder)
    for message in messages:
        writer.append(message)
    return folder / NAME


def spans(name: str) -> Message:
    return Trace(name).messages()[0]


def test_what_is_sent_is_read_again(receiver: Receiver, tmp_path: Path) -> None:
    traces, logs = Trace("one", client="c").messages()
    assert post(receiver, "/v1/traces", traces.body) == 200
    assert post(receiver, "/v1/logs", logs.body) == 200
    (request,) = load(tmp_path).requests
    assert (request.request_id, request.client_id, request.cached_tokens) == ("one", "c", 288)


def test_logs_without_a_request_record_are_not_stored(receiver: Receiver, tmp_path: Path) -> None:
    assert post(receiver, "/v1/logs", b"only a log line") == 200
    assert not is_recorded(tmp_path)


def test_measurements_of_the_adapter_are_read_again(receiver: Receiver, tmp_path: Path) -> None:
    traces, _, read = Trace("one", read=(500.0, 400.0)).messages()
    assert post(receiver, "/v1/traces", traces.body) == 200
    assert post(receiver, client_reads.PATH, read.body) == 200
    (request,) = load(tmp_path).requests
    assert (request.total_ms, request.client_blocked_ms) == (500.0, 400.0)
    assert post(receiver, client_reads.PATH, b'[{"span_id": 1}]') == 200
    assert load(tmp_path).unreadable == 1


def test_other_paths_are_refused(receiver: Receiver, tmp_path: Path) -> None:
    assert post(receiver, "/v1/metrics", b"") == 404
    assert not is_recorded(tmp_path)


@pytest.mark.parametrize("cut", [1, 3, 40])
def test_a_truncated_file_loses_only_its_last_message(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, *map(spans, "abc"))
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(load(tmp_path).requests) == 2


def test_a_damaged_message_is_counted_and_skipped(tmp_path: Path) -> None:
    write(tmp_path, Message(kind=Kind.TRACES, body=b"\xff\xff\xff"), spans("one"))
    loaded = load(tmp_path)
    assert (len(loaded.requests), loaded.unreadable) == (1, 1)


def test_the_size_is_bounded_by_two_files(tmp_path: Path) -> None:
    writer = Writer(tmp_path, file_bytes=1000)
    for number in range(30):
        writer.append(Message(kind=Kind.TRACES, body=bytes([number]) * 90))
    sizes = [(tmp_path / name).stat().st_size for name in (NAME, OLDER)]
    assert max(sizes) <= 1000
    kept = [message.body[0] for message in read(tmp_path)]
    assert kept == list(range(kept[0], 30))
    assert len(kept) >= 10


def test_nothing_recorded_is_no_request(tmp_path: Path) -> None:
    assert load(tmp_path / "missing").requests == ()


def test_after_a_full_disk_later_messages_are_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.append(spans("one"))
    size = (tmp_path / NAME).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
        for _ in range(2):
            with pytest.raises(OSError, match="large"):
                writer.append(spans("two"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / NAME).stat().st_size == size
    writer.append(spans("two"))
    loaded = load(tmp_path)
    assert [request.request_id for request in loaded.requests] == ["one", "two"]
    assert loaded.unreadable == 0


def test_a_damaged_part_of_the_file_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path, spans("one"), spans("two"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] = 99  # the kind of the second message
    path.write_bytes(data)
    loaded = load(tmp_path)
    assert (len(loaded.requests), loaded.unreadable) == (1, 1)


INVALID = ({"cached": float("nan")}, {"cached": float("inf")}, {"cached": 10**400})


@pytest.mark.parametrize(
    "changes", [*INVALID, {"cached": [1]}, {"input": "inf"}, {"output": "1e308"}]
)
def test_invalid_numbers_are_ignored(tmp_path: Path, changes: dict[str, object]) -> None:
    write(tmp_path, *Trace("one", **changes).messages(), *Trace("two").messages())
    assert len(load(tmp_path).requests) == 2


@pytest.mark.parametrize(
    "payload", ["[" * 100_000, '{"request": {"request_id": ["x"]}}', '{"request": 1}', "NaN"]
)
def test_invalid_request_records_are_ignored(tmp_path: Path, payload: str) -> None:
    export = ExportLogsServiceRequest()
    log = export.resource_logs.add().scope_logs.add().log_records.add()
    log.attributes.add(key="payload").value.string_value = payload
    log_record = Message(kind=Kind.LOGS, body=export.SerializeToString())
    client_read = Message(kind=Kind.CLIENT_READS, body=b'[{"span_id": "\xff"}]')
    write(tmp_path, log_record, client_read, spans("one"))
    loaded = load(tmp_path)
    assert (len(loaded.requests), loaded.unreadable) == (1, 1)
