"""How `penstock bench` runs its load generator, with a program in place of AIPerf."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from penstock.bench.aiperf import END_S
from tests.bench.bench_process import Running, run_process
from tests.bench.fake_aiperf import HANGS, IGNORES
from tests.support.completions_server import CompletionsServer, Response
from tests.support.outputs import read_output

pytestmark = pytest.mark.program

REQUESTS = 20
BENCH, INTERRUPTED = 19, 130


Bench = Callable[..., CompletedProcess[str]]


def test_figures_of_a_complete_run(bench: Bench) -> None:
    done = bench("succeed", "--ttft", "30ms")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("workload (recorded arrivals), scripted at http://")
    assert lines[1] == "SLO met: 100.0% of requests within TTFT ≤ 30 ms (95% needed)"
    assert [line.split() for line in lines[2:7]] == [
        ["latency", "(ms)", "p50", "p90", "p99", "SLO"],
        ["TTFT", "20.0", "20.0", "20.0", "30"],
        ["ITL", "10.0", "10.0", "10.0", "-"],
        ["gap", "between", "chunks", "10.0", "10.0", "10.0", "-"],
        ["end-to-end", "50.0", "50.0", "50.0", "-"],
    ]
    assert "not sent" not in done.stdout
    assert "failed: 0 of " in done.stdout
    assert done.stderr == ""


def test_the_folder_keeps_the_requests_and_records(tmp_path: Path, bench: Bench) -> None:
    out = tmp_path / "out"
    done = bench("succeed", "--out", str(out), "--json")
    assert read_output("bench", done.stdout)["failures"] == {"sent": REQUESTS, "reasons": {}}
    assert sorted(path.name for path in out.iterdir()) == [
        "aiperf.log",
        "profile_export.jsonl",
        "requests.jsonl",
    ]


def test_fewer_requests_and_an_slo_of_two_latencies(bench: Bench) -> None:
    slo = ("--ttft", "30ms", "--itl", "9ms")
    done = bench("succeed", "--requests", "10", *slo)
    assert done.returncode == 0
    expected = "SLO missed: 0.0% of requests within TTFT ≤ 30 ms, ITL ≤ 9 ms (95% needed)"
    assert expected in done.stdout.replace(" and ", ", ")
    assert "measured window:" in done.stdout


def test_a_sweep(bench: Bench) -> None:
    more = ("--sweep", "1,2", "--gpus", "4", "--ttft", "30ms")
    done = bench("succeed", *more)
    assert done.returncode == 0
    assert "tokens/s/GPU" in done.stdout
    assert "the SLO (TTFT ≤ 30 ms) is met up to scale 2" in done.stdout


def test_no_temporary_file_remains(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    assert bench("succeed").returncode == 0
    assert list(scratch.iterdir()) == []


def test_an_error_before_the_run_leaves_no_folder(tmp_path: Path, bench: Bench) -> None:
    out = tmp_path / "out"
    done = bench("succeed", "--out", str(out), "--predict", "no.yaml")
    assert done.returncode == 8
    assert "penstock tools env install sim" in done.stderr
    assert not out.exists()


def test_the_folder_may_be_relative(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AIPerf runs in another working folder."""
    monkeypatch.chdir(tmp_path)
    done = bench("succeed", "--out", "own/run-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "own" / "run-1" / "profile_export.jsonl").exists()


def test_a_load_generator_that_fails_at_the_start(bench: Bench) -> None:
    done = bench("fail")
    assert (done.returncode, done.stdout) == (BENCH, "")
    assert "AIPerf failed with exit code 3: ERROR the load generator broke. Fix: " in done.stderr
    assert "Read aiperf.log in the folder that --out names." in done.stderr


def test_an_endpoint_that_never_answers(bench: Bench) -> None:
    """AIPerf's own exit code is 1 then, but the run is complete."""
    done = bench("time-out")
    assert done.returncode == BENCH
    reason = "no complete response within --request-timeout"
    assert f"failed: 20 of 20 requests (20 × {reason})" in done.stdout
    assert "incomplete" not in done.stdout
    assert f"served none of the requests: {reason}. Fix: Read" in done.stderr
    assert "raise --request-timeout" in done.stderr


def test_the_cause_is_read_from_a_box_in_the_log(bench: Bench) -> None:
    done = bench("fail-with-box")
    assert done.returncode == BENCH
    assert "exit code 3: 1 validation error for AIPerfConfig a field is missing. Fix" in done.stderr


def test_a_load_generator_that_fails_in_mid_run(bench: Bench) -> None:
    done = bench("fail-in-mid-run")
    assert done.returncode == BENCH
    cause = "AIPerf failed with exit code 3: ERROR the load generator broke"
    for line in (f"incomplete: {cause}", "10 requests were not sent, or have no record"):
        assert line in done.stdout.splitlines()
    assert "TTFT" in done.stdout
    assert f"the run is incomplete: {cause}. Fix: Correct the cause" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_interrupt_ends_a_load_generator_that_hangs(
    number: int, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Before the first record there are no figures."""
    out = tmp_path / "out"
    first: list[float] = []  # when the first signal was sent

    def interrupt(running: Running) -> None:
        running.wait_for((out / HANGS).exists, "a load generator that hangs")
        first.append(time.monotonic())
        running.signal(number)
        running.wait_for((out / IGNORES).exists, "the interrupt of the load generator")
        running.signal(number)

    with CompletionsServer(script=lambda _: Response()).running() as target:
        ended = run_process(
            [target.url, *arguments, "--out", str(out)],
            interrupt,
            PENSTOCK_ENVIRONMENTS=str(tmp_path / "environments"),
            FAKE_AIPERF="hang",
        )
    assert time.monotonic() - first[0] < END_S - 1
    assert (ended.code, ended.stdout, ended.left) == (INTERRUPTED, "", [])
    assert "Traceback" not in ended.stderr
