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
from tests.capture.logs import START_MS, entry, enveloped, record, text_entry


def _lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in records)


def _capture(log: Path, *options: str) -> list[dict[str, Any]]:
    """The rows of the trace."""
    out = log.parent / "trace.jsonl"
    assert main(["capture", str(log), "-o", str(out), "--force", *options]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def _written(folder: Path, text: str, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _fails(argv: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["capture", *argv]) == code
    return capsys.readouterr().err


def test_equal_prefixes_get_equal_ids_and_no_hash_is_written(tmp_path: Path) -> None:
    secret = 17_166_538_085_639_450_551
    first = record(0, hashes=(1, 2, 3, secret, 5), tokens=70)
    second = record(1, hashes=(1, 2, 3, secret, 6), tokens=80)
    rows = _capture(_written(tmp_path, _lines(first, second)))
    assert rows == [
        {"timestamp": 0, "input_length": 70, "output_length": 4, "hash_ids": [0, 1]},
        {"timestamp": 1000, "input_length": 80, "output_length": 4, "hash_ids": [0, 2]},
    ]
    loaded = find_workload(str(tmp_path / "trace.yaml"))
    assert [request.blocks[0] for request in loaded.requests(0)] == [1, 1]


@pytest.mark.parametrize("block", [1, 16, 32, 48, 64, 128, 512])
def test_a_trace_has_one_id_per_block_for_each_block_size(tmp_path: Path, block: int) -> None:
    chance = random.Random(block)
    rows = []
    for number in range(30):
        tokens = chance.randint(1, 3000)
        hashes = [chance.getrandbits(64) for _ in range(-(-tokens // block))]
        rows.append(record(number, tokens=tokens, hashes=hashes, block_tokens=block))
    trace = _capture(_written(tmp_path, _lines(*rows)))
    size = trace_block_tokens(block)
    assert [len(row["hash_ids"]) for row in trace] == [
        -(-row["input_length"] // size) for row in trace
    ]
    assert len(find_workload(str(tmp_path / "trace.yaml")).requests(0)) == 30


def test_planted_text_and_secrets_are_in_no_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    log = _written(tmp_path, _lines(planted, payload) + broken + "PLANTEDTEXT\n")
    _capture(log)
    envoy = _written(tmp_path, _lines(entry(1)) + text_entry(2), "access.log")
    out = tmp_path / "envoy.jsonl"
    lengths = ["--input-tokens", "1000:0.5", "--output-tokens", "100"]
    assert main(["capture", str(envoy), "-o", str(out), *lengths]) == 0
    printed = capsys.readouterr()
    files = [tmp_path / name for name in ("trace.jsonl", "trace.yaml", "envoy.jsonl", "envoy.yaml")]
    written = "".join(path.read_text() for path in files) + printed.out + printed.err
    assert "log.jsonl:3" in written
    assert "PLANTED" not in written


def test_logs_of_several_frontends_are_merged_by_time(tmp_path: Path) -> None:
    order = list(range(40))
    random.Random(3).shuffle(order)
    for name, numbers in (("a", sorted(order[:20])), ("b", sorted(order[20:]))):
        lines = "".join(enveloped(record(number), 1000 * number) for number in numbers)
        half = len(lines) // 2
        half = lines.index("\n", half) + 1
        for index, part in enumerate((lines[:half], lines[half:])):
            path = tmp_path / f"{name}.{index:06d}.jsonl.gz"
            path.write_bytes(gzip.compress(part.encode()))
    rows = _capture(tmp_path)
    assert [row["timestamp"] for row in rows] == [1000 * number for number in range(40)]
    assert _capture(tmp_path / "*.jsonl.gz") == rows


def test_a_duplicate_is_dropped_and_a_repeated_id_at_another_time_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = record(1, request_id="id-0")
    rows = _capture(_written(tmp_path, _lines(record(0), record(0), again)))
    assert len(rows) == 2
    assert "1 duplicate records" in capsys.readouterr().out


def test_other_events_and_records_without_lengths_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end"}
    bare = record(1, replay=None, input_tokens=None)
    rows = _capture(_written(tmp_path, _lines(record(0), tool, bare, record(2, replay=None))))
    assert [row.get("hash_ids") for row in rows] == [[0, 1], None]
    out = capsys.readouterr().out
    assert "1 records of other events" in out
    assert "1 records without token counts" in out


def test_a_few_broken_lines_are_skipped_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = record(2, hashes=(1, 2))
    lines = [json.dumps(record(0)), "{no json", json.dumps(wrong), json.dumps(record(3))]
    log = _written(tmp_path, "\n".join(lines) + "\n")
    assert len(_capture(log)) == 2
    err = capsys.readouterr().err
    assert f"{log}:2: invalid JSON" in err
    assert f"{log}:3: 2 prefix hashes instead of 5 for 70 tokens in blocks of 16" in err
    error = _fails([str(log), "-o", str(tmp_path / "s.jsonl"), "--strict"], 3, capsys)
    assert "2 of 4 lines are broken; --strict allows none" in error
    assert not (tmp_path / "s.jsonl").exists()


def test_many_broken_lines_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _written(tmp_path, _lines(record(0)) + "{\n" * 4)
    error = _fails([str(log), "-o", str(tmp_path / "t.jsonl")], 3, capsys)
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
def test_a_wrong_value_is_a_broken_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, value: object
) -> None:
    log = _written(tmp_path, _lines(record(0), record(1, **{field: value})))
    assert len(_capture(log)) == 1
    err = capsys.readouterr().err
    assert f"{log}:2: " in err
    assert "PLANTED" not in err


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_file_that_ends_inside_a_line_is_read_to_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_compressed: bool
) -> None:
    text = _lines(*(record(number) for number in range(50)))
    log = tmp_path / "live.jsonl.gz"
    content = gzip.compress(text.encode()) if is_compressed else text.encode()
    log.write_bytes(content[:-30])
    rows = _capture(log, "--strict")
    assert 40 < len(rows) < 50
    assert f"{log}: ends inside a line" in capsys.readouterr().err


def test_a_damaged_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl.gz"
    content = bytearray(gzip.compress(os.urandom(4000).hex().encode()))
    content[60:80] = bytes(20)
    log.write_bytes(content)
    assert "is damaged after line" in _fails([str(log), "-o", str(tmp_path / "t.jsonl")], 3, capsys)


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
        (_lines(record(0) | {"schema": "dynamo.request.trace.v2"}), "another schema"),
        (_lines(record(0, output_tokens=None)), "no request in 1 records"),
        ('{"schema": "dynamo.request.trace.v1", ', "has no complete line"),
        ("no record", "neither a request trace of Dynamo nor an access log of Envoy"),
    ],
)
def test_a_log_without_requests_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    log = _written(tmp_path, text)
    error = _fails([str(log), "-o", str(tmp_path / "t.jsonl"), "--strict"], 3, capsys)
    assert str(log) in error
    assert message in error
    assert not (tmp_path / "t.jsonl").exists()


def test_a_source_that_cannot_be_read_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["-o", str(tmp_path / "t.jsonl")]
    (tmp_path / "empty").mkdir()
    assert "no such file" in _fails([str(tmp_path / "x"), *out], 3, capsys)
    assert "no file matches" in _fails([str(tmp_path / "x*"), *out], 3, capsys)
    assert "the folder has no file" in _fails([str(tmp_path / "empty"), *out], 3, capsys)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in _fails([str(tmp_path / "pipe"), *out], 3, capsys)
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be read" in _fails([str(tmp_path / "loop"), *out], 3, capsys)
    log = _written(tmp_path, _lines(record(0)))
    real = Path.open

    def refused(path: Path, *args: Any, **options: Any) -> Any:
        if path == log:
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", refused)
    assert f"{log}: cannot be read: Permission denied" in _fails([str(log), *out], 3, capsys)


def test_an_existing_file_is_replaced_only_with_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _written(tmp_path, _lines(record(0)))
    workload = _written(tmp_path, "requests: 3\n", "t.yaml")
    out = ["-o", str(tmp_path / "t.jsonl")]
    assert "t.yaml: already exists" in _fails([str(log), *out], 3, capsys)
    assert workload.read_text() == "requests: 3\n"
    assert main(["capture", str(log), *out, "--force"]) == 0
    assert "mooncake" in workload.read_text()
    text = log.read_text()
    (tmp_path / "link.jsonl").symlink_to(log)
    for name in (log, tmp_path / "link.jsonl"):
        same = [str(log), "-o", str(name), "--force"]
        assert f"-o: {name} is also a SOURCE" in _fails(same, 2, capsys)
    assert log.read_text() == text
    assert "does not end with .jsonl" in _fails([str(log), "-o", "t.txt"], 2, capsys)
    assert "there is no folder" in _fails([str(log), "-o", str(tmp_path / "n/t.jsonl")], 2, capsys)


def test_options_of_nats_are_refused_for_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _written(tmp_path, _lines(record(0)))
    out = ["-o", str(tmp_path / "t.jsonl")]
    assert "--stream" in _fails([str(log), *out, "--stream", "s"], 2, capsys)
    assert "one SOURCE" in _fails([str(log), "nats://127.0.0.1:4", *out], 2, capsys)


@pytest.mark.parametrize("text", ["\ufeff" + _lines(record(0)), _lines(record(0)).rstrip()])
def test_a_byte_order_mark_and_a_missing_line_end_change_nothing(tmp_path: Path, text: str) -> None:
    assert len(_capture(_written(tmp_path, text))) == 1


def test_a_log_that_is_repeated_is_no_jump_of_the_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = _lines(*(record(number) for number in range(5)))
    rows = _capture(_written(tmp_path, once + once), "--strict")
    assert [row["timestamp"] for row in rows] == [0, 1000, 2000, 3000, 4000]
    assert capsys.readouterr().err == ""


def test_a_file_whose_only_lines_are_broken_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _written(tmp_path, _lines(record(0, tokens=100), record(1, tokens=100)))
    error = _fails([str(log), "-o", str(tmp_path / "trace.jsonl")], 3, capsys)
    for line in (1, 2):
        assert f"{log}:{line}: 5 prefix hashes instead of 7 for 100 tokens" in error
    assert "no request in 2 records" in error
