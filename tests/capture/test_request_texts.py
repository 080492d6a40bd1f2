"""`penstock capture --include-text`: the prompts, in a file of their own and on request only."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.shadow.requests import read_requests
from penstock.capture.request_texts import RequestTexts
from penstock.cli.main import main
from penstock.errors import InputError
from tests.capture.logs import START_MS, Capture, entry, enveloped, record
from tests.support.outputs import read_output

TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {}}}]


def _payload(number: int, **body: Any) -> dict[str, Any]:
    request = {"messages": [{"role": "user", "content": f"prompt {number} é\n"}], "model": "m"}
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_payload",
        "event_time_unix_ms": START_MS,
        "payload": {
            "request_id": record(number)["request"]["request_id"],
            "request": request | body,
            "http_request_headers": {"authorization": "Bearer PLANTED"},
        },
    }


def texts(capture: Capture, log: Path, *options: str) -> Path:
    capture.rows(log, "--include-text", *options)
    return capture.folder / "trace.requests.jsonl"


def test_the_requests_are_in_order_of_arrival_with_what_decides_the_response(
    tmp_path: Path, capture: Capture
) -> None:
    private = {"user": "PLANTED", "metadata": {"a": "PLANTED"}, "nvext": {"session": "PLANTED"}}
    later = _payload(1, tools=TOOLS, temperature=0.5, seed=3, **private)
    path = texts(capture, capture.write(later, record(1), enveloped(_payload(0), 5), record(0)))
    first, second = read_requests(path).requests
    assert first.body == {
        "messages": [{"role": "user", "content": "prompt 0 é\n"}],
        "model": "m",
    }
    assert second.body["messages"][0]["content"] == "prompt 1 é\n"
    rest = {key: second.body[key] for key in second.body.keys() - {"messages", "model"}}
    assert rest == {"tools": TOOLS, "temperature": 0.5, "seed": 3}
    assert "PLANTED" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    printed = capture.printed()
    assert "warning: " in printed.err
    assert "trace.requests.jsonl contains the text that users sent" in printed.err
    assert "prompt" not in printed.out + printed.err
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "log.jsonl", "trace.jsonl", "trace.requests.jsonl", "trace.yaml",
    ]  # fmt: skip


def test_an_existing_file_is_replaced_with_force_and_gets_the_mode(
    tmp_path: Path, capture: Capture
) -> None:
    log = capture.write(_payload(0), record(0))
    path = tmp_path / "trace.requests.jsonl"
    path.write_text("mine")
    error = capture.fails(log, "-o", tmp_path / "trace.jsonl", "--include-text")
    assert "trace.requests.jsonl: already exists" in error
    assert path.read_text() == "mine"
    texts(capture, log, "--force")
    assert len(read_requests(path).requests) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_requests_without_text_or_without_an_end_are_not_in_the_file(capture: Capture) -> None:
    log = capture.write(_payload(0), record(0), _payload(0), record(1), _payload(2))
    assert len(read_requests(texts(capture, log)).requests) == 1
    assert "1 of 2 requests have no text" in capture.printed().err


def test_a_broken_payload_is_skipped_and_not_quoted(tmp_path: Path, capture: Capture) -> None:
    wrong = _payload(1)
    wrong["payload"]["request"] = ["PLANTED"]
    log = capture.write(_payload(0), record(0), wrong)
    assert len(read_requests(texts(capture, log, "--json")).requests) == 1
    printed = capture.printed()
    document = read_output("capture", printed.out)
    assert [(problem["file"], problem["line"]) for problem in document["skipped"]] == [
        (str(log), 3)
    ]
    assert document["files"]["requests"] == str(tmp_path / "trace.requests.jsonl")
    assert "PLANTED" not in printed.out + printed.err


@pytest.mark.parametrize("source", ["dynamo", "envoy"])
def test_a_source_without_text_is_an_error_and_nothing_is_written(
    tmp_path: Path, capture: Capture, source: str
) -> None:
    log = capture.write(record(0) if source == "dynamo" else entry(0))
    argv = ["capture", str(log), "-o", str(tmp_path / "t.jsonl"), "--include-text", "--json"]
    assert main(argv) == 3
    printed = capture.printed()
    assert f"{log}: no request has text" in printed.err
    assert "DYN_REQUEST_TRACE_RECORDS=request_end,request_payload" in printed.err
    assert printed.out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        RequestTexts(tmp_path / "missing")
