"""Recorded requests: both formats, and broken lines by their numbers."""

import json

import pytest

from penstock.errors import InputError
from penstock.workload.model import Trace
from penstock.workload.trace import read_trace

MOONCAKE = Trace(format="mooncake")
AZURE = Trace(format="azure")
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def lines(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def row(at: object = 0, tokens: int = 600, output: int = 5, ids: object = (1, 2)) -> object:
    return {"timestamp": at, "input_length": tokens, "output_length": output, "hash_ids": ids}


def test_mooncake_blocks_are_split_and_shared() -> None:
    text = lines(row(1000), row(1500, ids=[1, 3]), row(3000, output=0))
    recorded = read_trace(MOONCAKE, text, "t", None)
    first, second = recorded.requests
    assert recorded.without_output == 1
    assert (first.at_ms, second.at_ms) == (0.0, 500.0)
    assert len(first.blocks) == 10  # of 64 tokens
    assert first.blocks[:8] == second.blocks[:8]
    assert not set(first.blocks[8:]) & set(second.blocks[8:])


def test_speed_and_limit() -> None:
    fast = Trace(format="mooncake", speed=2)
    text = lines(*(row(at) for at in range(0, 5000, 1000)))
    assert [r.at_ms for r in read_trace(fast, text, "t", 3).requests] == [0, 500, 1000]


def test_the_earliest_request_is_the_start_whatever_the_order_of_the_lines() -> None:
    text = lines(*(row(at, tokens=at, ids=[]) for at in (3000, 2000, 1000)))
    recorded = read_trace(MOONCAKE, text, "t", None).requests
    assert [(r.at_ms, r.input_tokens) for r in recorded] == [(0, 1000), (1000, 2000), (2000, 3000)]


def test_a_line_beyond_the_limit_is_not_checked() -> None:
    assert len(read_trace(MOONCAKE, lines(row(), "broken"), "t", 1).requests) == 1


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("{nonsense", "invalid JSON at column 2"),
        ("[1]", "must be a JSON object"),
        (
            row(at=-1),
            "timestamp is -1, not a number of at least 0 and less than 1,000,000,000,000,000",
        ),
        (
            row(at=1e18),
            "timestamp is 1e+18, not a number of at least 0 and less than 1,000,000,000,000,000",
        ),
        (row(at="5"), 'timestamp is "5", not a number of'),
        (row(at=float("inf")), "timestamp is Infinity"),
        ('{"timestamp": ' + "9" * 5000 + "}", "invalid JSON: "),
        (
            row(tokens=0),
            "input_length is 0, not an integer of at least 1 and less than 1,000,000,000,000,000",
        ),
        (row(output=True), "output_length is true"),
        (row(ids=[1]), "1 hash_ids instead of 2 for "),
        (row(ids=["a", "b"]), "hash_ids must be a list of integers"),
        ({"timestamp": 0}, "input_length is null"),
    ],
)
def test_a_broken_line_is_named_by_its_number(broken: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(MOONCAKE, lines(row(), "", broken), "trace.jsonl", None)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == ("trace.jsonl", 3)
    assert words in str(problem)


def test_five_broken_lines_are_enough() -> None:
    with pytest.raises(InputError) as caught:
        read_trace(MOONCAKE, "x\n" * 100, "t", None)
    assert [p.line for p in caught.value.problems] == [1, 2, 3, 4, 5]


def test_azure_rows_with_and_without_a_time_zone() -> None:
    text = HEAD + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690+00:00,0,2\n"
    first, second = read_trace(AZURE, text, "t", None).requests
    assert (first.input_tokens, second.input_tokens) == (374, 1)
    assert second.at_ms == pytest.approx(4314.579, abs=0.01)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a,b\n1,2\n", 1, "there is no column TIMESTAMP, ContextTokens, GeneratedTokens"),
        (HEAD + "yesterday,1,2\n", 2, "is not a time"),
        (HEAD + "2023-11-16 18:15:46,1\n", 2, "GeneratedTokens is None"),
        (HEAD + "2023-11-16 18:15:46,1,x\n", 2, "GeneratedTokens is 'x'"),
    ],
)
def test_a_broken_table_is_named_by_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(AZURE, text, "t.csv", None)
    assert caught.value.problems[0].line == line
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the trace has no request"),
        ("\n\n", "the trace has no request"),
        (lines(row(output=0)), "the trace has no request with output tokens"),
    ],
)
def test_a_trace_without_requests_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=rf"t: {why}\. Fix: Name another file"):
        read_trace(MOONCAKE, text, "t", None)
