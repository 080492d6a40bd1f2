"""The trace that AIPerf gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.bench.trace_file import keyed, write_trace
from penstock.workload import BLOCK_TOKENS, Request


def request(at_ms: float | None, tokens: int, *blocks: int, **more: Any) -> Request:
    return Request(at_ms=at_ms, input_tokens=tokens, output_tokens=7, blocks=blocks, **more)


REQUESTS = (
    request(0.0, 70, 1, 2),
    request(5.0, 70, 1, 3, session="A"),
    request(None, 80, 1, 3, session="A", think_ms=250.0),
    request(9.5, 70),
)


def lines(folder: Path, salt: str = "", *, is_scheduled: bool = True) -> list[dict[str, Any]]:
    path = folder / "requests.jsonl"
    write_trace(path, keyed(REQUESTS), "a-model", salt, is_scheduled=is_scheduled)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_requests_are_named_by_conversation_and_turn() -> None:
    assert list(keyed(REQUESTS)) == [("r0", 0), ("cA", 0), ("cA", 1), ("r3", 0)]


def test_times_of_arrival_and_thinking(tmp_path: Path) -> None:
    times = [
        (line["session_id"], line.get("timestamp"), line.get("delay")) for line in lines(tmp_path)
    ]
    assert times == [
        ("r0", 0.0, None),
        ("cA", 5.0, None),
        ("cA", None, 250.0),
        ("r3", 9.5, None),
    ]


def test_a_fixed_concurrency_has_no_times_of_arrival(tmp_path: Path) -> None:
    times = lines(tmp_path, is_scheduled=False)
    assert [latencies.get("timestamp") for latencies in times] == [None] * 4
    assert [latencies.get("delay") for latencies in times] == [None, None, 250.0, None]


def test_a_request_asks_for_exactly_its_tokens(tmp_path: Path) -> None:
    payload = lines(tmp_path)[0]["payload"]
    assert len(payload.pop("prompt")) == 70
    assert payload == {
        "model": "a-model",
        "max_tokens": 7,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_chat_request_has_text_of_as_many_words(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    write_trace(path, keyed(REQUESTS), "a-model", "", is_scheduled=True, is_chat=True)
    payloads = [json.loads(line)["payload"] for line in path.read_text().splitlines()]
    texts = [payload["messages"][0]["content"] for payload in payloads]
    assert [len(text.split()) for text in texts] == [70, 70, 80, 70]
    assert payloads[0] == {
        "model": "a-model",
        "messages": [{"role": "user", "content": texts[0]}],
        "max_tokens": 7,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_prefixes_are_shared_as_in_the_workload(tmp_path: Path) -> None:
    first, second, third, unshared = (line["payload"]["prompt"] for line in lines(tmp_path))
    assert first[:BLOCK_TOKENS] == second[:BLOCK_TOKENS] == third[:BLOCK_TOKENS]
    assert first[BLOCK_TOKENS:] != second[BLOCK_TOKENS:] == third[BLOCK_TOKENS:70]
    assert len(unshared) == 70
    assert unshared[:BLOCK_TOKENS] != first[:BLOCK_TOKENS]


def test_another_salt_changes_all_prompts(tmp_path: Path) -> None:
    for each, other in zip(lines(tmp_path, "a"), lines(tmp_path, "b"), strict=True):
        assert each["payload"]["prompt"][:5] != other["payload"]["prompt"][:5]
