"""Artificial Analysis' performance test, with AIPerf and with a program in its place."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.bench.aiperf import Endpoint
from penstock.bench.measurement import Failures
from penstock.bench.methods.artificial_analysis import PARTS, PartResult, Spread, output_speed
from penstock.bench.methods.report import part_remarks
from tests.bench.bench_runs import e2e_ms, ttft_ms
from tests.bench.fake_aiperf import install
from tests.bench.hand_written import served
from tests.support.command_line import penstock
from tests.support.completions_server import CompletionsServer, Response
from tests.support.outputs import read_output
from tests.support.scripted_http import respond, serving

BENCH = 19
METHOD = ("--method", "artificial-analysis")


def bench(folder: Path, *arguments: str, does: str = "succeed") -> CompletedProcess[str]:
    install(folder / "environments")
    server = CompletionsServer(script=lambda _: Response())
    with server.running(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_ENVIRONMENTS", str(folder / "environments"))
        patch.setenv("FAKE_AIPERF", does)
        return penstock("bench", "public", server.url, *METHOD, *arguments)


@pytest.mark.program
def test_both_definitions_are_printed(tmp_path: Path) -> None:
    """Each response of the program begins after 20 ms and ends after 50 ms."""
    done = bench(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("artificial-analysis 10k, scripted at http://127.0.0.1:")
    assert lines[1] == (
        "8 requests: 10,000 input and 1,500 output tokens per request, one after another"
    )
    speed, throughput = 1499 / 0.030, 1500 / 0.050
    assert [line.split()[-3:] for line in lines[3:7]] == [
        ["20.0"] * 3,
        ["50.0"] * 3,
        [f"{speed:.1f}"] * 3,
        [f"{throughput:.1f}"] * 3,
    ]
    assert "a request after its first token: TTFT is excluded" in done.stdout
    assert "its complete duration: TTFT is included" in done.stdout
    assert "prompts are random token IDs" in done.stdout


@pytest.mark.program
def test_the_requests_have_the_lengths_of_the_part(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench(tmp_path, "--part", "1k-parallel", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    bodies = [json.loads(line)["payload"] for line in (out / "requests.jsonl").open()]
    assert {(len(body["prompt"]), body["max_tokens"]) for body in bodies} == {(1000, 1000)}
    assert len({tuple(body["prompt"]) for body in bodies}) == len(bodies) == 10
    document = read_output("bench", done.stdout)
    assert document["part"]["concurrency"] == 10
    assert document["output_speed"]["median"] == pytest.approx(999 / 0.030)
    assert document["throughput"]["median"] == pytest.approx(1000 / 0.050)


@pytest.mark.program
def test_a_run_without_a_served_request_is_an_error(tmp_path: Path) -> None:
    done = bench(tmp_path, "--requests", "2", does="time-out")
    assert done.returncode == BENCH
    assert "failed: 2 of 2 requests" in done.stdout
    assert "served none of the requests" in done.stderr


@pytest.mark.program
def test_requests_that_are_longer_than_the_context_are_not_sent(tmp_path: Path) -> None:
    install(tmp_path)
    listed = b'{"data": [{"id": "m", "context_window": 8192}]}'
    with serving(lambda r: respond(r, listed)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
        done = penstock("bench", "public", url, *METHOD, "--part", "100k")
    assert done.returncode == BENCH
    assert "a request has 102,000 tokens, and the context length is 8,192. Fix:" in done.stderr


@pytest.mark.needs("aiperf")
@pytest.mark.nightly  # AIPerf writes the records that tests/bench/test_latencies.py compares
def test_the_speeds_agree_with_the_records_of_aiperf(tmp_path: Path) -> None:
    server = CompletionsServer(script=lambda _: Response(first_s=0.4, gap_s=0.002))
    arguments = ("--part", "1k", "--requests", "2", "--out", str(tmp_path / "out"), "--json")
    with server.running():
        done = penstock("bench", "public", server.url, *METHOD, *arguments)
    assert done.returncode == 0, done.stderr
    document = read_output("bench", done.stdout)
    records = [json.loads(line) for line in (tmp_path / "out/profile_export.jsonl").open()]
    assert len(records) == len(server.sent) == 2
    speeds = [999_000 / (e2e_ms(record) - ttft_ms(record)) for record in records]
    rates = [1_000_000 / e2e_ms(record) for record in records]
    for name, values in (("output_speed", speeds), ("throughput", rates)):
        assert document[name]["lowest"] == pytest.approx(min(values))
        assert document[name]["highest"] == pytest.approx(max(values))
    # A TTFT of 0.4 s before 2 s of output.
    assert document["output_speed"]["median"] > 1.1 * document["throughput"]["median"]


def test_the_first_token_does_not_count_for_the_output_speed() -> None:
    assert output_speed(served(100.0, 200.0, 11)) == pytest.approx(100.0)
    assert output_speed(served(100.0, 100.0, 1)) is None
    assert output_speed(served(100.0, 100.0, 11)) is None  # all tokens came at once


def test_chunks_of_several_tokens_are_reported() -> None:
    spread = Spread(median=1.0, lowest=1.0, highest=1.0)
    result = PartResult(
        endpoint=Endpoint(url="http://h", model="m"),
        part=PARTS["1k"],
        requests=1,
        failures=Failures(sent=1, reasons={}),
        unsent=0,
        ttft_ms=spread,
        e2e_ms=spread,
        output_speed=spread,
        throughput=spread,
        tokens_per_chunk=3.0,
        context=None,
        cpu_share=0.0,
        interrupted="",
    )
    assert any("a chunk of a stream has 3.0 tokens" in line for line in part_remarks(result))
