"""The System Load Test: its concurrencies, its windows, and when it ends."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from penstock.bench.aiperf import Endpoint
from penstock.bench.measurement import Failures
from penstock.bench.methods.report import system_load_report
from penstock.bench.methods.system_load import Phase, SystemLoad, levels, phase_of
from penstock.bench.records import FailedRequest, Records
from tests.bench.hand_written import served
from tests.bench.methods.test_artificial_analysis import bench
from tests.reports.read import text_of
from tests.support.outputs import read_output

E2E_MS, TTFT_MS, TOKENS = 1000.0, 100.0, 901


def records(level: int, rounds: int, failed: int = 0, unsent: int = 100) -> Records:
    """Each of ``level`` users sends a request when the one before ends."""
    by_key = {
        (f"r{number}-{user}", 0): served(TTFT_MS, E2E_MS, TOKENS, at_ms=number * E2E_MS)
        for number in range(rounds)
        for user in range(level)
    }
    failures = (
        FailedRequest(key=(f"f{n}", 0), sent_ms=0.0, reason="HTTP 500") for n in range(failed)
    )
    return Records(
        start_ms=0.0,
        served=by_key,
        failed=tuple(failures),
        unsent=unsent,
        late_ms=(),
        chunk_gaps_ms=(),
        requested_tokens=0,
    )


def test_the_concurrency_doubles_to_64_and_then_rises_by_64() -> None:
    assert list(islice(levels(None), 10)) == [1, 2, 4, 8, 16, 32, 64, 128, 192, 256]
    assert list(levels(5)) == [1, 2, 4]


def test_the_throughput_is_that_of_the_window() -> None:
    phase = phase_of(records(4, rounds=11), 4, 9.5, 8.0, prepared=1000, cpu_share=0.0)
    assert phase.window_s == pytest.approx(8.0)  # it ends 9.5 s after the first request
    assert phase.system_throughput == pytest.approx(4 * TOKENS, rel=0.02)
    assert (phase.response_rate, phase.failures.sent) == (1.0, 44)


def test_the_window_ends_with_the_last_prompt() -> None:
    phase = phase_of(records(4, 5, unsent=0), 4, 9.5, 8.0, prepared=20, cpu_share=0.0)
    assert phase.window_s == pytest.approx(3.0)  # from 1 s to the last arrival at 4 s
    assert phase.system_throughput == pytest.approx(4 * TOKENS, rel=0.02)


def test_failed_requests_lower_the_response_rate() -> None:
    phase = phase_of(records(1, 9, failed=1), 1, 9.5, 8.0, prepared=1000, cpu_share=0.0)
    assert phase.response_rate == pytest.approx(0.9)


def test_a_phase_without_a_served_request_has_no_throughput() -> None:
    phase = phase_of(records(1, 0, failed=3), 1, 9.5, 8.0, prepared=3, cpu_share=0.0)
    assert (phase.system_throughput, phase.response_rate, phase.ttft_ms) == (0.0, 0.0, None)


def test_the_report_says_what_differs_from_the_method() -> None:
    first = phase_of(records(1, 11), 1, 9.5, 8.0, prepared=1000, cpu_share=0.0)
    second = phase_of(records(2, 3, failed=1, unsent=0), 2, 9.5, 8.0, prepared=7, cpu_share=0.95)
    load = SystemLoad(
        endpoint=Endpoint(url="http://h", model="m"),
        phase_s=8.0,
        phases=[first, second],
        reached_ceiling=False,
        interrupted="",
    )
    text = text_of(system_load_report(load))
    assert "the test ended before the throughput stopped rising" in text
    assert "phases last 8 s; those of Artificial Analysis last 180 s" in text
    assert "concurrency 2: the window is shorter than a phase" in text
    assert "concurrency 2: failed: 1 of 7 requests (1 × HTTP 500)" in text
    assert "concurrency 2: this machine may have distorted the latencies: 95%" in text
    assert "concurrency 1:" not in text


def test_the_best_phase_is_that_with_the_highest_throughput() -> None:
    def phase(level: int, rate: float) -> Phase:
        return Phase(
            concurrency=level,
            window_s=180.0,
            system_throughput=rate,
            response_rate=1.0,
            ttft_ms=None,
            e2e_ms=None,
            output_speed=None,
            throughput=None,
            failures=Failures(sent=1, reasons={}),
            cpu_share=0.0,
        )

    load = SystemLoad(
        endpoint=Endpoint(url="http://h", model="m"),
        phase_s=180.0,
        phases=[phase(1, 10.0), phase(2, 19.0), phase(4, 18.0)],
        reached_ceiling=True,
        interrupted="",
    )
    text = text_of(system_load_report(load)).splitlines()
    assert text[-1] == "highest throughput: 19 tokens/s at concurrency 2"


@pytest.mark.program
def test_the_phases_are_measured_one_after_another(tmp_path: Path) -> None:
    """A request takes 50 ms, at every concurrency."""
    arguments = ("--part", "system-load", "--phase", "1s", "--max-concurrency", "4")
    done = bench(tmp_path, *arguments, "--out", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    document = read_output("bench", done.stdout)
    phases = document["phases"]
    assert [phase["concurrency"] for phase in phases] == [1, 2, 4]
    for phase in phases:
        assert phase["window_s"] == pytest.approx(1.0, abs=0.1)
        assert phase["system_throughput"] == pytest.approx(phase["concurrency"] * 20_000, rel=0.05)
        assert phase["throughput"]["median"] == pytest.approx(20_000)
    assert not document["reached_ceiling"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "first-request",
        "concurrency-1",
        "concurrency-2",
        "concurrency-4",
    }
