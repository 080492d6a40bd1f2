"""`penstock capture` of files: what is in the trace, and what is wrong with a log."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.record import trace_block_tokens
from penstock.cli.main import main
from penstock.workload import find_workload
from tests.capture.logs import START_MS, Capture, entry, enveloped, lines, record, text_entry


def test_equal_prefixes_get_equal_ids_and_no_hash_is_written(
    tmp_path: Path, capture: Capture
) -> None:
    secret = 17_166_538_085_639_450_551
    first = record(0, hashes=(1, 2, 3, secret, 5), tokens=70)
    second = record(1, hashes=(1, 2, 3, secret, 6), tokens=80)
    rows = capture.rows(capture.write(first, second))
    assert rows == [
        {"timestamp": 0, "input_length": 70, "output_length": 4, "hash_ids": [0, 1]},
        {"timestamp": 1000, "input_length": 80, "output_length": 4, "hash_ids": [0, 2]},
    ]
    loaded = find_workload(str(tmp_path / "trace.yaml"))
    assert [request.blocks[0] for request in loaded.requests(0)] == [1, 1]


@pytest.mark.parametrize("block", [1, 16, 32, 48, 64, 128, 512])
def test_a_trace_has_one_id_per_block_for_each_block_size(
    tmp_path: Path, capture: Capture, block: int
) -> None:
    chance = random.Random(block)
    rows = []
    for number in range(30):
        tokens = chance.randint(1, 3000)
        hashes = [chance.getrandbits(64) for _ in range(-(-tokens // block))]
        rows.append(record(number, tokens=tokens, hashes=hashes, block_tokens=block))
    trace = capture.rows(capture.write(*rows))
    size = trace_block_tokens(block)
    assert [len(row["hash_ids"]) for row in trace] == [
        -(-row["input_length"] // size) for row in trace
    ]
    assert len(find_workload(str(tmp_path / "trace.yaml")).requests(0)) == 30


def test_planted_text_and_secrets_are_in_no_output(tmp_path: Path, capture: Capture) -> None:
    planted = record(0, x_request_id="PLANTEDID", model="PLANTEDMODEL")
    planted["agent_context"] = {"session_id": "PLANTEDSESSION"}
    headers = {"authorization": "Bearer PLANTEDKEY"}
    request = {"messages": [{"role": "user", "content": "PLANTEDTEXT"}], "user": "PLANTEDUSER"}
    payload: dict[str, Any] = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_payload",
        "event_time_unix_ms": START_MS,
        "payload": {"request": request, "http_request_headers": headers},
    }
    broken = '{"schema": "dynamo.request.trace.v1", "event_type": ["PLANTEDTEXT"]}\n'
    log = capture.write(lines(planted, payload) + broken + "PLANTEDTEXT\n")
    capture.rows(log)
    envoy = capture.write(lines(entry(1)) + text_entry(2), name="access.log")
    out = tmp_path / "envoy.jsonl"
    lengths = ["--input-tokens", "1000:0.5", "--output-tokens", "100"]
    assert main(["capture", str(envoy), "-o", str(out), *lengths]) == 0
    printed = capture.printed()
    files = [tmp_path / name for name in ("trace.jsonl", "trace.yaml", "envoy.jsonl", "envoy.yaml")]
    written = "".join(path.read_text() for path in files) + printed.out + printed.err
    assert "log.jsonl:3" in written
    assert "PLANTED" not in written


def test_logs_of_several_frontends_are_merged_by_time(tmp_path: Path, capture: Capture) -> None:
    order = list(range(40))
    random.Random(3).shuffle(order)
    for name, numbers in (("a", sorted(order[:20])), ("b", sorted(order[20:]))):
        lines = "".join(enveloped(record(number), 1000 * number) for number in numbers)
        half = len(lines) // 2
        half = lines.index("\n", half) + 1
        for index, part in enumerate((lines[:half], lines[half:])):
            path = tmp_path / f"{name}.{index:06d}.jsonl.gz"
            path.write_bytes(gzip.compress(part.encode()))
    rows = capture.rows(tmp_path)
    assert [row["timestamp"] for row in rows] == [1000 * number for number in range(40)]
    assert capture.rows(tmp_path / "*.jsonl.gz") == rows


def test_a_duplicate_is_dropped_and_a_repeated_id_at_another_time_is_kept(capture: Capture) -> None:
    again = record(1, request_id="id-0")
    rows = capture.rows(capture.write(record(0), record(0), again))
    assert len(rows) == 2
    assert "1 duplicate records" in capture.printed().out


def test_other_events_and_records_without_lengths_are_counted(capture: Capture) -> None:
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end"}
    bare = record(1, replay=None, input_tokens=None)
    rows = capture.rows(capture.write(record(0), tool, bare, record(2, replay=None)))
    assert [row.get("hash_ids") for row in rows] == [[0, 1], None]
    out = capture.printed().out
    assert "1 records of other events" in out
    assert "1 records without token counts" in out


def test_a_few_broken_lines_are_skipped_and_named(tmp_path: Path, capture: Capture) -> None:
    wrong = record(2, hashes=(1, 2))
    lines = [json.dumps(record(0)), "{no json", json.dumps(wrong), json.dumps(record(3))]
    log = capture.write("\n".join(lines) + "\n")
    assert len(capture.rows(log)) == 2
    err = capture.printed().err
    assert f"{log}:2: invalid JSON" in err
    assert f"{log}:3: 2 prefix hashes instead of 5 for 70 tokens in blocks of 16" in err
    error = capture.fails(log, "-o", tmp_path / "s.jsonl", "--strict")
    assert "2 of 4 lines are broken; --strict allows none" in error
    assert not (tmp_path / "s.jsonl").exists()


def test_many_broken_lines_are_an_error(tmp_path: Path, capture: Capture) -> None:
    log = capture.write(lines(record(0)) + "{\n" * 4)
    error = capture.fails(log, "-o", tmp_path / "t.jsonl")
    assert "4 of 5 lines are broken; at most 3 may be broken" in error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_received_ms", -5),
        ("request_received_ms", 10**17),
        ("output_tokens", -1),
        ("input_tokens", "PLANTED"),
        ("replay", {"trace_block_size": 0, "input_length": 70, "input_sequence_hashes": []}),
        ("replay", {"trace_block_size": 16, "input_length": 8, "input_sequence_hashes": [-1]}),
    ],
)
def test_a_wrong_value_is_a_broken_line(capture: Capture, field: str, value: object) -> None:
    log = capture.write(record(0), record(1, **{field: value}))
    assert len(capture.rows(log)) == 1
    err = capture.printed().err
    assert f"{log}:2: " in err
    assert "PLANTED" not in err


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_file_that_ends_inside_a_line_is_read_to_there(
    tmp_path: Path, capture: Capture, is_compressed: bool
) -> None:
    text = lines(*(record(number) for number in range(50)))
    log = tmp_path / "live.jsonl.gz"
    content = gzip.compress(text.encode()) if is_compressed else text.encode()
    log.write_bytes(content[:-30])
    rows = capture.rows(log, "--strict")
    assert 40 < len(rows) < 50
    assert f"{log}: ends inside a line" in capture.printed().err


def test_a_damaged_file_is_an_error(tmp_path: Path, capture: Capture) -> None:
    log = tmp_path / "log.jsonl.gz"
    content = bytearray(gzip.compress(os.urandom(4000).hex().encode()))
    content[60:80] = bytes(20)
    log.write_bytes(content)
    assert "is damaged after line" in capture.fails(log, "-o", tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"timestamp": 1, "input_length": 2, "output_length": 3}\n', "already a workload trace"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "already a workload trace"),
        ('{"level": "info"}\n', "is JSON of an unknown kind"),
        ('{"log": "{}\\n", "stream": "stdout"}\n', "is a log of Docker"),
        ('[pod/a/main] {"schema": "x"}\n', "has other text before the JSON of each line"),
        ("INFO 127.0.0.1 - GET /health\n", "neither a request trace of Dynamo nor an access log"),
        ("", "is empty"),
        (lines(record(0) | {"schema": "dynamo.request.trace.v2"}), "another schema"),
        (lines(record(0, output_tokens=None)), "no request in 1 records"),
        ('{"schema": "dynamo.request.trace.v1", ', "has no complete line"),
        ("no record", "neither a request trace of Dynamo nor an access log of Envoy"),
    ],
)
def test_a_log_without_requests_says_what_it_is(
    tmp_path: Path, capture: Capture, text: str, message: str
) -> None:
    log = capture.write(text)
    error = capture.fails(log, "-o", tmp_path / "t.jsonl", "--strict")
    assert str(log) in error
    assert message in error
    assert not (tmp_path / "t.jsonl").exists()


def test_a_source_that_cannot_be_read_is_an_error(
    tmp_path: Path, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ("-o", tmp_path / "t.jsonl")
    (tmp_path / "empty").mkdir()
    assert "no such file" in capture.fails(tmp_path / "x", *out)
    assert "no file matches" in capture.fails(tmp_path / "x*", *out)
    assert "the folder has no file" in capture.fails(tmp_path / "empty", *out)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in capture.fails(tmp_path / "pipe", *out)
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be read" in capture.fails(tmp_path / "loop", *out)
    log = capture.write(record(0))
    real = Path.open

    def refused(path: Path, *args: Any, **options: Any) -> Any:
        if path == log:
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", refused)
    assert f"{log}: cannot be read: Permission denied" in capture.fails(log, *out)


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path, capture: Capture) -> None:
    log = capture.write(record(0))
    workload = capture.write("requests: 3\n", name="t.yaml")
    out = ("-o", tmp_path / "t.jsonl")
    assert "t.yaml: already exists" in capture.fails(log, *out)
    assert workload.read_text() == "requests: 3\n"
    assert capture.fails(log, *out, "--force", code=0) == ""
    assert "mooncake" in workload.read_text()
    text = log.read_text()
    (tmp_path / "link.jsonl").symlink_to(log)
    for name in (log, tmp_path / "link.jsonl"):
        same = (log, "-o", name, "--force")
        assert f"-o: {name} is also a SOURCE" in capture.fails(*same, code=2)
    assert log.read_text() == text
    assert "does not end with .jsonl" in capture.fails(log, "-o", "t.txt", code=2)
    assert "there is no folder" in capture.fails(str(log), "-o", tmp_path / "n/t.jsonl", code=2)


def test_options_of_nats_are_refused_for_files(tmp_path: Path, capture: Capture) -> None:
    log = capture.write(record(0))
    out = ("-o", tmp_path / "t.jsonl")
    assert "--stream" in capture.fails(log, *out, "--stream", "s", code=2)
    assert "one SOURCE" in capture.fails(log, "nats://127.0.0.1:4", *out, code=2)


@pytest.mark.parametrize("text", ["\ufeff" + lines(record(0)), lines(record(0)).rstrip()])
def test_a_byte_order_mark_and_a_missing_line_end_change_nothing(
    capture: Capture, text: str
) -> None:
    assert len(capture.rows(capture.write(text))) == 1


def test_a_log_that_is_repeated_is_no_jump_of_the_clock(capture: Capture) -> None:
    once = lines(*(record(number) for number in range(5)))
    rows = capture.rows(capture.write(once + once), "--strict")
    assert [row["timestamp"] for row in rows] == [0, 1000, 2000, 3000, 4000]
    assert capture.printed().err == ""


def test_a_file_whose_only_lines_are_broken_names_them(tmp_path: Path, capture: Capture) -> None:
    log = capture.write(record(0, tokens=100), record(1, tokens=100))
    error = capture.fails(log, "-o", tmp_path / "trace.jsonl")
    for line in (1, 2):
        assert f"{log}:{line}: 5 prefix hashes instead of 7 for 100 tokens" in error
    assert "no request in 2 records" in error
