"""Envoy's access log, in JSON and as text: arrivals, lengths where it has them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.capture.logs import entry, text_entry

LENGTHS = ("--input-tokens", "1000:0.5", "--output-tokens", "100")
OWN_MESSAGE = "[2026-11-27 02:00:00.000][1][info][main] [source/server/server.cc:1] starting\n"


def _capture(folder: Path, text: str, *options: str) -> list[dict[str, int]]:
    log, out = folder / "access.log", folder / "trace.jsonl"
    log.write_text(text)
    assert main(["capture", str(log), "-o", str(out), "--force", *options]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("has_text", [False, True])
def test_arrivals_are_read_from_both_formats(tmp_path: Path, has_text: bool) -> None:
    seconds = (1, 2, 5)
    lines = [text_entry(s) if has_text else json.dumps(entry(s)) + "\n" for s in seconds]
    rows = _capture(tmp_path, OWN_MESSAGE + "".join(lines), *LENGTHS)
    assert [row["timestamp"] for row in rows] == [0, 1000, 4000]
    assert {row["output_length"] for row in rows} == {100}
    assert all("hash_ids" not in row for row in rows)


def test_sampled_lengths_have_the_stated_mean_and_a_seed(tmp_path: Path) -> None:
    text = "".join(
        json.dumps(entry(number % 60, **{"x-request-id": str(number)})) + "\n"
        for number in range(4000)
    )
    lengths = [row["input_length"] for row in _capture(tmp_path, text, *LENGTHS)]
    assert statistics.fmean(lengths) == pytest.approx(1000, rel=0.05)
    assert statistics.pstdev(lengths) == pytest.approx(500, rel=0.1)
    assert lengths == [row["input_length"] for row in _capture(tmp_path, text, *LENGTHS)]
    other = [row["input_length"] for row in _capture(tmp_path, text, *LENGTHS, "--seed", "1")]
    assert lengths != other


def test_requests_that_generate_nothing_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_text = [
        entry(2, response_code=429),
        entry(3, method="GET", **{"x-envoy-origin-path": "/v1/models"}),
        entry(4, response_code="0"),
    ]
    text = "".join(json.dumps(row) + "\n" for row in (entry(1), *without_text))
    assert len(_capture(tmp_path, text, *LENGTHS)) == 1
    out = capsys.readouterr().out
    assert "2 requests that failed (status not 200)" in out
    assert "1 requests that do not generate text" in out


def test_token_counts_of_the_ai_gateway_are_used(tmp_path: Path) -> None:
    counts = {"gen_ai.usage.input_tokens": "321", "gen_ai.usage.output_tokens": 45}
    rows = _capture(tmp_path, json.dumps(entry(1, **counts)) + "\n")
    assert rows == [{"timestamp": 0, "input_length": 321, "output_length": 45}]
    missing = counts | {"gen_ai.usage.output_tokens": "-"}
    rows = _capture(tmp_path, json.dumps(entry(1, **missing)) + "\n", "--output-tokens", "7")
    assert rows == [{"timestamp": 0, "input_length": 321, "output_length": 7}]


def test_missing_lengths_are_an_error_that_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "access.log"
    log.write_text(json.dumps(entry(1)) + "\n")
    out = tmp_path / "trace.jsonl"
    assert main(["capture", str(log), "-o", str(out)]) == 3
    err = capsys.readouterr().err
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], message: str
) -> None:
    text = "".join(json.dumps(row) + "\n" for row in (entry(1), entry(2) | change))
    assert len(_capture(tmp_path, text, *LENGTHS)) == 1
    err = capsys.readouterr().err
    assert "access.log:2: " in err
    assert message in err
