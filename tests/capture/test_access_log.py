"""Envoy's access log, in JSON and as text: arrivals, lengths where it has them."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.capture.logs import Capture, entry, text_entry

LENGTHS = ("--input-tokens", "1000:0.5", "--output-tokens", "100")
OWN_MESSAGE = "[2026-11-27 02:00:00.000][1][info][main] [source/server/server.cc:1] starting\n"


@pytest.mark.parametrize("has_text", [False, True])
def test_arrivals_are_read_from_both_formats(capture: Capture, has_text: bool) -> None:
    seconds = (1, 2, 5)
    rows = [text_entry(s) if has_text else entry(s) for s in seconds]
    rows = capture.rows(capture.write(OWN_MESSAGE, *rows), *LENGTHS)
    assert [row["timestamp"] for row in rows] == [0, 1000, 4000]
    assert {row["output_length"] for row in rows} == {100}
    assert all("hash_ids" not in row for row in rows)


def test_sampled_lengths_have_the_stated_mean_and_a_seed(capture: Capture) -> None:
    rows = (entry(number % 60, **{"x-request-id": str(number)}) for number in range(4000))
    log = capture.write(*rows)
    lengths = [row["input_length"] for row in capture.rows(log, *LENGTHS)]
    assert statistics.fmean(lengths) == pytest.approx(1000, rel=0.05)
    assert statistics.pstdev(lengths) == pytest.approx(500, rel=0.1)
    assert lengths == [row["input_length"] for row in capture.rows(log, *LENGTHS)]
    other = [row["input_length"] for row in capture.rows(log, *LENGTHS, "--seed", "1")]
    assert lengths != other


def test_requests_that_generate_nothing_are_left_out(capture: Capture) -> None:
    without_text = [
        entry(2, response_code=429),
        entry(3, method="GET", **{"x-envoy-origin-path": "/v1/models"}),
        entry(4, response_code="0"),
    ]
    assert len(capture.rows(capture.write(entry(1), *without_text), *LENGTHS)) == 1
    out = capture.printed().out
    assert "2 requests that failed (status not 200)" in out
    assert "1 requests that do not generate text" in out


def test_token_counts_of_the_ai_gateway_are_used(capture: Capture) -> None:
    counts = {"gen_ai.usage.input_tokens": "321", "gen_ai.usage.output_tokens": 45}
    rows = capture.rows(capture.write(entry(1, **counts)))
    assert rows == [{"timestamp": 0, "input_length": 321, "output_length": 45}]
    missing = counts | {"gen_ai.usage.output_tokens": "-"}
    rows = capture.rows(capture.write(entry(1, **missing)), "--output-tokens", "7")
    assert rows == [{"timestamp": 0, "input_length": 321, "output_length": 7}]


def test_missing_lengths_are_an_error_that_names_the_option(
    tmp_path: Path, capture: Capture
) -> None:
    log = capture.write(entry(1))
    out = tmp_path / "trace.jsonl"
    err = capture.fails(log, "-o", out)
    assert "have no number of input tokens" in err
    assert "--input-tokens 1000:0.5" in err
    assert not out.exists()
    with pytest.raises(SystemExit) as error:
        main(["capture", str(log), "--input-tokens", "0"])
    assert error.value.code == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_time": "yesterday"}, "start_time is not an ISO 8601 time"),
        ({"duration": "fast"}, "duration is not a number"),
        ({"response_code": [1]}, "the record has a wrong field"),
        ({"start_time": "0001-01-01T00:00:00Z"}, "is -62,135,600,000,000, not a Unix time in ms"),
    ],
)
def test_a_wrong_field_is_a_broken_line(
    capture: Capture, change: dict[str, object], message: str
) -> None:
    log = capture.write(entry(1), entry(2) | change)
    assert len(capture.rows(log, *LENGTHS)) == 1
    err = capture.printed().err
    assert f"{log}:2: " in err
    assert message in err
