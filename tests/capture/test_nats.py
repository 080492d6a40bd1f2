"""Records from a real NATS server: Ctrl-C, a server that dies, JetStream, credentials."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import nats
import pytest

from penstock.capture.capture import Captured
from penstock.capture.nats_source import SUBJECT, NatsSource, capture_nats, is_nats
from penstock.cli.main import main
from penstock.errors import InputError, Problem
from penstock.local.ports import Ports
from penstock.workload import find_workload
from tests.capture.logs import record
from tests.support.full_disk import small_disk
from tests.support.needs import program
from tests.support.outputs import read_output
from tests.support.waiting import LIMIT_S, wait_for


class Server:
    """`nats-server` on loopback."""

    def __init__(self, folder: Path) -> None:
        self._port = Ports().free()
        self.url = f"nats://127.0.0.1:{self._port}"
        self._argv = [program("nats-server"), "-a", "127.0.0.1", "-p", str(self._port)]
        self._argv += ["-js", "-sd", str(folder)]
        self.start()

    def start(self) -> None:
        self._child = subprocess.Popen(
            self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._listens, f"nats-server to listen on {self.url}")

    def _listens(self) -> bool:
        with closing(socket.socket()) as connection:
            return connection.connect_ex(("127.0.0.1", self._port)) == 0

    def stop(self) -> None:
        self._child.kill()
        self._child.wait(10)

    def publish(self, *messages: bytes, stream: str | None = None) -> None:
        asyncio.run(self._publish(messages, stream))

    def delete_stream(self, name: str) -> None:
        async def delete() -> None:
            client = await nats.connect(self.url)
            await client.jetstream().delete_stream(name)
            await client.close()

        asyncio.run(delete())

    async def _publish(self, messages: tuple[bytes, ...], stream: str | None) -> None:
        client = await nats.connect(self.url)
        if stream:
            await client.jetstream().add_stream(name=stream, subjects=[SUBJECT])
        for message in messages:
            await client.publish(SUBJECT, message)
        await client.flush()
        await client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "js")
    yield running
    running.stop()


def _messages(count: int) -> list[bytes]:
    return [json.dumps(record(number)).encode() for number in range(count)]


def _started(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """A capture that reads."""
    argv = [sys.executable, "-m", "penstock.cli.main", "capture", *arguments, "-o", str(out)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    line = child.stderr.readline()
    assert line.startswith("reading "), line
    return child


@pytest.mark.parametrize("has_text", [True, False])
def test_the_text_of_live_requests_is_written_and_without_text_only_the_trace(
    server: Server, tmp_path: Path, has_text: bool
) -> None:
    out = tmp_path / "live.jsonl"
    child = _started(out, server.url, "--requests", "2", "--include-text", "--json")
    payload = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_payload",
        "payload": {"request_id": "id-1", "request": {"messages": [{"content": "PLANTED"}]}},
    }
    server.publish(*([json.dumps(payload, indent=1).encode()] if has_text else []), *_messages(2))
    printed, errors = child.communicate(timeout=30)
    assert child.returncode == (0 if has_text else 3)
    assert len(find_workload(str(out.with_suffix(".yaml"))).requests(0)) == 2
    document = read_output("capture", printed)
    requests = out.with_suffix(".requests.jsonl")
    if has_text:
        assert json.loads(requests.read_text()) == payload["payload"]["request"]
        assert (document["files"]["requests"], document["error"]) == (str(requests), None)
    else:
        assert not requests.exists()
        assert "no request has text" in document["error"]
        assert "DYN_REQUEST_TRACE_RECORDS" in errors
    assert not list(tmp_path.glob("*.partial"))


def _wait_for_lines(path: Path, count: int) -> None:
    def has_lines() -> bool:
        return path.exists() and len(path.read_text().splitlines()) >= count

    wait_for(has_lines, f"{path} with {count} lines")


@dataclass
class Notes:
    """What a capture notes, for a thread that waits for it."""

    lines: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def wait_for(self, words: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.has(words), LIMIT_S), words

    def has(self, words: str) -> bool:
        return any(words in line for line in self.lines)


def _captured(
    source: NatsSource, partial: Path, act: Callable[[Notes], None]
) -> tuple[Captured, Problem | None, Notes]:
    """A capture in this process; ``act`` runs in a thread once it reads."""
    notes = Notes()

    def run() -> None:
        notes.wait_for("reading")
        act(notes)

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(run)
        captured, problem = capture_nats(source, partial, notify=notes.add)
        acting.result()
    return captured, problem, notes


pytestmark = [pytest.mark.needs("servers"), pytest.mark.xdist_group("capture-nats")]


def test_ctrl_c_keeps_everything_and_each_record_is_on_disk_at_once(
    tmp_path: Path, server: Server
) -> None:
    out = tmp_path / "trace.jsonl"
    child = _started(out, server.url)
    server.publish(*_messages(5), b"PLANTED no record", *_messages(2))
    partial = tmp_path / "trace.jsonl.partial"
    _wait_for_lines(partial, 5)
    workload = tmp_path / "partial.yaml"
    workload.write_text(f"trace: {{format: mooncake, file: {partial.name}, block_tokens: 64}}\n")
    assert len(find_workload(str(workload)).requests(0)) == 5
    first = json.loads(partial.read_text().splitlines()[0])
    assert first["timestamp"] == 3_600_000  # not a date
    server.publish(b"{}", *_messages(6)[5:])
    _wait_for_lines(partial, 6)
    child.send_signal(signal.SIGINT)
    printed, err = child.communicate(timeout=20)
    assert child.returncode == 0
    assert len(find_workload(str(tmp_path / "trace.yaml")).requests(0)) == 6
    assert not partial.exists()
    assert "2 duplicate records" in printed
    assert f"skipped: {SUBJECT}:6: invalid JSON" in err
    assert "PLANTED" not in printed + err


def test_a_server_that_dies_ends_the_capture_and_keeps_its_records(
    tmp_path: Path, server: Server
) -> None:
    out = tmp_path / "trace.jsonl"
    partial = tmp_path / "trace.jsonl.partial"
    source = NatsSource(url=server.url, reconnects=1, reconnect_s=0.05)

    def publish_and_die(notes: Notes) -> None:
        server.publish(*_messages(3))
        _wait_for_lines(partial, 3)
        server.stop()

    captured, problem, notes = _captured(source, partial, publish_and_die)
    assert len(captured.requests) == 3
    assert problem is not None
    assert f"the connection to {server.url} was lost" in problem.message
    assert notes.has("connecting again")
    assert not out.exists()


def test_a_connection_that_comes_back_is_used_again(tmp_path: Path, server: Server) -> None:
    partial = tmp_path / "trace.jsonl.partial"
    source = NatsSource(url=server.url, requests=4, reconnects=1000, reconnect_s=0.05)

    def restart(notes: Notes) -> None:
        server.publish(*_messages(2))
        _wait_for_lines(partial, 2)
        server.stop()
        server.start()
        notes.wait_for("connected again")
        server.publish(*_messages(6))

    captured, problem, _ = _captured(source, partial, restart)
    assert (len(captured.requests), problem) == (4, None)
    assert len(partial.read_text().splitlines()) == 4


def test_a_jetstream_stream_is_read_from_its_first_record(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.publish(*_messages(6), stream="TRACES")
    out = tmp_path / "trace.jsonl"
    argv = [server.url, "-o", str(out), "--duration-s", "20", "--requests", "6"]
    assert main(["capture", *argv, "--stream", "TRACES"]) == 0
    assert len(out.read_text().splitlines()) == 6
    capsys.readouterr()
    assert main(["capture", *argv, "--stream", "OTHER", "--force"]) == 3
    assert "cannot read subject" in capsys.readouterr().err


@pytest.mark.parametrize("is_restart", [True, False])
def test_a_stream_that_is_created_again_is_read_from_its_first_record(
    tmp_path: Path, server: Server, is_restart: bool
) -> None:
    server.publish(*_messages(6), stream="TRACES")
    partial = tmp_path / "trace.jsonl.partial"
    source = NatsSource(
        url=server.url,
        stream="TRACES",
        requests=9,
        reconnects=1000,
        reconnect_s=0.05,
        watch_s=0.05,
    )

    def create_again(_: Notes) -> None:
        _wait_for_lines(partial, 6)
        if is_restart:  # with an empty store
            server.stop()
            shutil.rmtree(tmp_path / "js")
            server.start()
        else:
            server.delete_stream("TRACES")
        server.publish(*_messages(9)[6:], stream="TRACES")

    captured, problem, notes = _captured(source, partial, create_again)
    assert (len(captured.requests), problem) == (9, None)
    assert notes.has("stream TRACES was created again; reading all of it")
    assert len(partial.read_text().splitlines()) == 9


def test_after_a_full_disk_the_partial_trace_can_be_used(tmp_path: Path, server: Server) -> None:
    with small_disk(tmp_path / "disk", kib=64) as disk:
        if disk is None:
            pytest.skip("this user may not mount a file system")
        child = _started(disk / "trace.jsonl", server.url)
        server.publish(*_messages(2000))
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 3, errors
        partial = disk / "trace.jsonl.partial"
        lines = [json.loads(line) for line in partial.read_text().splitlines()]
        assert 10 < len(lines) < 2000
        assert f"{partial}: cannot be written: No space left on device; it contains the " in errors
        assert f"{len(lines):,} requests until then" in errors


def test_no_record_and_no_server_are_errors_without_the_password(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "trace.jsonl")]
    assert main(["capture", server.url, *out, "--duration-s", "0.01"]) == 3
    assert "received no request (0 records)" in capsys.readouterr().err
    assert main(["capture", f"nats://me:PLANTED@127.0.0.1:{Ports().free()}", *out]) == 3
    err = capsys.readouterr().err
    assert "cannot connect to nats://127.0.0.1:" in err
    assert "PLANTED" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["js"]


def test_a_partial_trace_of_an_earlier_capture_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partial = tmp_path / "trace.jsonl.partial"
    partial.write_text("{}\n")
    assert main(["capture", "nats://127.0.0.1:4", "-o", str(tmp_path / "trace.jsonl")]) == 3
    assert "already exists" in capsys.readouterr().err
    assert partial.read_text() == "{}\n"
    assert is_nats("tls://h:4222")
    assert not is_nats("nats.jsonl")


def test_a_partial_trace_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    source = NatsSource(url="nats://127.0.0.1:4")
    with pytest.raises(InputError, match="cannot be written"):
        capture_nats(source, tmp_path / "no" / "x.partial", notify=lambda _: None)
