"""`penstock capture --json`: the report as one document with the published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from penstock.capture.documents import KINDS
from penstock.capture.record import LeftOut
from penstock.cli.main import main
from penstock.local.state import StateDir
from tests.capture.logs import entry, record
from tests.local.builders import running
from tests.support.outputs import read_output


def _written(folder: Path, *records: dict[str, Any] | str) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records))
    return path


def _document(log: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    out = str(log.parent / "t.jsonl")
    assert main(["capture", str(log), "-o", out, "--json", "--force", *options]) == 0
    return read_output("capture", capsys.readouterr().out)


def test_the_document_has_the_figures_of_the_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [record(n, output_tokens=10 * n, cached_tokens=7) for n in range(1, 5)]
    rows.append(record(5, replay=None, input_tokens=70, output_tokens=100, cached_tokens=None))
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end"}
    log = _written(tmp_path, *rows, rows[0], tool, "{no json\n", '{"schema": "dyn')
    found = _document(log, capsys)
    assert found["files"] == {
        "trace": str(tmp_path / "t.jsonl"), "workload": str(tmp_path / "t.yaml"), "requests": None,
    }  # fmt: skip
    assert (found["records"], found["requests"], found["error"]) == (9, 5, None)
    assert found["duration_s"] == 4
    assert found["request_rate"] == 1.25
    assert found["isl"] == {"mean": 70, "p50": 70, "p99": 70}
    assert found["osl"] == {"mean": 40, "p50": 30, "p99": 100}
    assert found["with_prefix_hashes"] == 4
    assert found["prefix_hit_rate"] == pytest.approx(0.1)
    assert found["left_out"] == {"duplicate": 1, "other_event": 1}
    (skipped,) = found["skipped"]
    assert (skipped["file"], skipped["line"]) == (str(log), 8)
    assert skipped["problem"].startswith("invalid JSON")
    assert found["unfinished_files"] == [str(log)]
    assert len(found["warnings"]) == 2


def test_a_jump_of_the_clock_is_in_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _written(tmp_path, record(0), record(1), record(-3600), record(-3599))
    found = _document(log, capsys)
    (jump,) = found["clock_jumps"]
    assert (jump["file"], jump["line"]) == (str(log), 3)
    assert jump["jump_s"] == pytest.approx(-3601, abs=2)
    assert "jumps" in found["warnings"][0]


def test_one_request_has_no_rate_and_an_access_log_no_hit_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _written(tmp_path, entry(0))
    found = _document(log, capsys, "--input-tokens", "50", "--output-tokens", "5")
    assert (found["request_rate"], found["prefix_hit_rate"]) == (None, None)
    assert found["isl"]["mean"] == 50


def test_every_kind_has_a_name() -> None:
    assert set(KINDS) == set(LeftOut)


def test_an_error_is_on_stderr_and_prints_no_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _written(tmp_path, "{\n" * 9)
    argv = ["capture", str(log), "-o", str(tmp_path / "t.jsonl"), "--json", "--format", "dynamo"]
    assert main(argv) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "9 of 9 lines are broken" in printed.err


@pytest.mark.parametrize(("worker", "expected"), [(0xAB, True), (0xCD, False), (0xEF, None)])
def test_a_capture_of_mockers_of_this_machine_says_so(
    worker: int,
    expected: bool | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As far as the graphs that are up have the workers of the records."""
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    state = running()
    engine = with_fields(
        state.replicas[0],
        worker_id="cd",
        is_mocker=False,
        is_substitute=False,
    )
    folder = StateDir(tmp_path / "g.yaml")
    folder.create()
    folder.write(with_fields(state, replicas=(*state.replicas, engine)))
    log = _written(tmp_path, record(1, worker={"decode_worker_id": worker}), record(2, worker={}))
    assert _document(log, capsys)["engine_is_substitute"] is expected
    assert main(["capture", str(log), "-o", str(tmp_path / "t.jsonl"), "--force"]) == 0
    says_so = capsys.readouterr().out.startswith("no engine ran: mockers simulated")
    assert says_so is bool(expected)
