"""What the page gets of recorded requests: the list, the path of one, and what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.live.page import view
from penstock.live.page.view import RecordedRequests
from penstock.local.state import StateDir
from penstock.local.tracing import folder
from penstock.tracing.requests import Loaded, load
from penstock.tracing.store import FILE_BYTES, Kind, Message, Writer
from tests.tracing.build import Trace, peers


def traced(tmp_path: Path) -> StateDir:
    graph = tmp_path / "graph.yaml"
    graph.write_text("model: {}\n")
    return StateDir(graph, tmp_path / "state")


def store(state: StateDir, *traces: Trace) -> None:
    writer = Writer(folder(state), FILE_BYTES)
    for trace in traces:
        for message in trace.messages():
            writer.append(message)


def test_the_reply_has_the_path_of_a_request(tmp_path: Path) -> None:
    state = traced(tmp_path)
    store(state, *peers(), Trace("slow", at_ms=50_000, client="mine", prefill_ms=90.0, cached=0))
    path = RecordedRequests(state)({"id": "mine"}, {"22": "decode.0"})["path"]
    assert path["id"] == "slow"
    assert path["summary"][0] == "client ID mine"
    assert path["steps"][1:3] == [
        ("prefill worker 11", "selected with 9 cached KV blocks of the prompt"),
        ("decode worker 22 (decode.0)", "selected with 9 cached KV blocks of the prompt"),
    ]
    prefill = next(stage for stage in path["stages"] if stage["name"] == "prefill")
    assert (prefill["time"], prefill["usual"], prefill["is_slow"]) == ("89.9 ms", "9.9 ms", True)
    ends = [stage["start"] + stage["share"] for stage in path["stages"]]
    assert ends == sorted(ends)
    assert ends[-1] == pytest.approx(1.0)
    assert [label for label, _ in path["verdict"]] == ["slow stage", "cause", "why", "fix"]


def test_the_list_has_the_newest_or_the_slowest_first(tmp_path: Path) -> None:
    state = traced(tmp_path)
    store(state, Trace("slow", at_ms=-10, decode_ms=500.0), *peers(30))
    read = RecordedRequests(state)
    newest, slowest = (read({"order": order}, {}) for order in ("newest", "slowest"))
    assert newest["rows"][0][0] == "peer-29"
    assert slowest["rows"][0][0] == "slow"
    assert newest["note"] == "20 of 31 recorded requests"
    Writer(folder(state)).append(Message(kind=Kind.TRACES, body=b"\xff\xff"))
    assert read({"order": "newest"}, {})["note"].endswith("; skipped 1 damaged messages")


def test_the_traces_are_read_again_only_if_more_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []

    def counted(path: Path) -> Loaded:
        reads.append(path)
        return load(path)

    monkeypatch.setattr(view, "load", counted)
    state = traced(tmp_path)
    store(state, *peers(1))
    read = RecordedRequests(state)
    assert read({"id": "chatcmpl-new"}, {})["is_unknown"]
    assert "path" in read({"id": "peer-0"}, {})
    assert len(reads) == 1
    store(state, Trace("new", at_ms=5_000))
    assert read({"id": "chatcmpl-new"}, {})["path"]["id"] == "new"
    assert len(reads) == 2


def test_a_graph_without_traces_says_how_to_record_them(tmp_path: Path) -> None:
    state = traced(tmp_path)
    read = RecordedRequests(state)
    reply = read({"order": "newest"}, {})
    assert reply["is_traced"] is False
    assert reply["problem"].startswith("The graph was never up. Run")
    state.logs.mkdir(parents=True)
    assert "recorded no traces" in read({"id": "x"}, {})["problem"]
    assert "--trace" in read({"id": "x"}, {})["problem"]
    folder(state).mkdir()
    assert read({"order": "slowest"}, {})["rows"] == []
    unknown = read({"id": "chatcmpl-x"}, {})
    assert unknown["is_unknown"]
    assert "has the ID 'chatcmpl-x'" in unknown["problem"]
