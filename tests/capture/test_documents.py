"""`penstock capture --json`: the report as one document with the published schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace as with_fields

from penstock.capture.documents import Kind
from penstock.capture.record import LeftOut
from penstock.cli.main import main
from penstock.local.state import StateDir
from tests.capture.logs import Capture, entry, record
from tests.local.builders import running
from tests.support.outputs import read_output


def document(capture: Capture, log: Path, *options: str) -> Any:
    capture.rows(log, "--json", *options)
    return read_output("capture", capture.printed().out)


def test_the_document_has_the_figures_of_the_trace(tmp_path: Path, capture: Capture) -> None:
    rows = [record(n, output_tokens=10 * n, cached_tokens=7) for n in range(1, 5)]
    rows.append(record(5, replay=None, input_tokens=70, output_tokens=100, cached_tokens=None))
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end"}
    log = capture.write(*rows, rows[0], tool, "{no json\n", '{"schema": "dyn')
    printed = document(capture, log)
    files = {"trace": str(tmp_path / "trace.jsonl"), "workload": str(tmp_path / "trace.yaml")}
    assert printed["files"] == files | {"requests": None}
    assert (printed["records"], printed["requests"], printed["error"]) == (9, 5, None)
    assert printed["duration_s"] == 4
    assert printed["request_rate"] == 1.25
    assert printed["isl"] == {"mean": 70, "p50": 70, "p99": 70}
    assert printed["osl"] == {"mean": 40, "p50": 30, "p99": 100}
    assert printed["with_prefix_hashes"] == 4
    assert printed["prefix_hit_rate"] == pytest.approx(0.1)
    assert printed["left_out"] == {"duplicate": 1, "other_event": 1}
    (skipped,) = printed["skipped"]
    assert (skipped["file"], skipped["line"]) == (str(log), 8)
    assert skipped["problem"].startswith("invalid JSON")
    assert printed["unfinished_files"] == [str(log)]
    assert len(printed["warnings"]) == 2


def test_a_jump_of_the_clock_is_in_the_document(capture: Capture) -> None:
    log = capture.write(record(0), record(1), record(-3600), record(-3599))
    printed = document(capture, log)
    (jump,) = printed["clock_jumps"]
    assert (jump["file"], jump["line"]) == (str(log), 3)
    assert jump["jump_s"] == pytest.approx(-3601, abs=2)
    assert "jumps" in printed["warnings"][0]


def test_one_request_has_no_rate_and_an_access_log_no_hit_rate(capture: Capture) -> None:
    log = capture.write(entry(0))
    printed = document(capture, log, "--input-tokens", "50", "--output-tokens", "5")
    assert (printed["request_rate"], printed["prefix_hit_rate"]) == (None, None)
    assert printed["isl"]["mean"] == 50


def test_every_kind_has_a_name() -> None:
    assert set(get_args(Kind)) == {kind.name.lower() for kind in LeftOut}


def test_an_error_is_on_stderr_and_prints_no_document(tmp_path: Path, capture: Capture) -> None:
    log = capture.write("{\n" * 9)
    argv = ["capture", str(log), "-o", str(tmp_path / "t.jsonl"), "--json", "--format", "dynamo"]
    assert main(argv) == 3
    printed = capture.printed()
    assert printed.out == ""
    assert "9 of 9 lines are broken" in printed.err


@pytest.mark.parametrize(("worker", "expected"), [(0xAB, True), (0xCD, False), (0xEF, None)])
def test_a_capture_of_mockers_of_this_machine_says_so(
    worker: int, expected: bool | None, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the graphs that are up have the workers of the records."""
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(capture.folder / "state"))
    state = running()
    engine = with_fields(state.replicas[0], worker_id="cd", is_mocker=False, is_substitute=False)
    folder = StateDir(capture.folder / "g.yaml")
    folder.create()
    folder.write(with_fields(state, replicas=(*state.replicas, engine)))
    log = capture.write(record(1, worker={"decode_worker_id": worker}), record(2, worker={}))
    assert document(capture, log)["engine_is_substitute"] is expected
    capture.rows(log)
    says_so = capture.printed().out.splitlines()[1].startswith("no engine ran: mockers simulated")
    assert says_so is bool(expected)
