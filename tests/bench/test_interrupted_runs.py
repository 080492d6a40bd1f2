"""A run that ends early prints the requests until then, says why, and leaves no process."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.bench.bench_process import Ended, Running, run_process
from tests.bench.bench_runs import write_workload
from tests.support.completions_server import CompletionsServer, Response
from tests.support.full_disk import fill, small_disk

# test_load_generator.py interrupts a load generator that starts at once, and
# test_bad_bench_targets.py has a disk that is full at the start.
pytestmark = [pytest.mark.needs("aiperf"), pytest.mark.nightly]

REQUESTS, EARLY = 100, 40
SLACK = 20  # requests whose record is late, or that are served while a busy machine acts
BENCH, INTERRUPTED = 19, 130
TIMEOUT = ("--request-timeout", "2s")


@dataclass(frozen=True, kw_only=True)
class EndedEarly(Ended):
    served: int
    """Requests when the test acted: a client that was stalled sends many at once before."""


def run_with(
    folder: Path, server: CompletionsServer, act: Callable[[Running], object]
) -> EndedEarly:
    """Call ``act`` once when `EARLY` requests have been served."""
    served: list[int] = []

    def act_early(running: Running) -> None:
        running.wait_for(lambda: len(server.sent) >= EARLY, f"{EARLY} served requests")
        served.append(len(server.sent))
        act(running)

    workload = write_workload(folder / "workload", REQUESTS, output_tokens=20, every_ms=100.0)
    with server.running():
        arguments = [server.url, *workload, *TIMEOUT, "--out", str(folder / "out")]
        ended = run_process(arguments, act_early)
    assert served[0] >= EARLY, ended.stderr
    return EndedEarly(**vars(ended), served=served[0])


Scenario = Callable[[Path], EndedEarly | None]


def terminated(folder: Path) -> EndedEarly:
    server = CompletionsServer(script=lambda _: Response())
    return run_with(folder, server, lambda running: running.signal(signal.SIGTERM))


def died(folder: Path) -> EndedEarly:
    """The server closes its connections and its port."""
    server = CompletionsServer(script=lambda _: Response())
    return run_with(folder, server, lambda _: server.end())


def full_disk(folder: Path) -> EndedEarly | None:
    server = CompletionsServer(script=lambda _: Response())
    with small_disk(folder / "disk", kib=8192) as disk:
        if disk is None:
            return None
        return run_with(disk, server, lambda _: fill(disk))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scenario], EndedEarly | None]:
    """Each is run once: AIPerf takes 10 s to start."""
    return cache(lambda scenario: scenario(tmp_path_factory.mktemp("bench")))


@pytest.mark.parametrize("scenario", [terminated, died, full_disk])
def test_no_process_remains(
    ended: Callable[[Scenario], EndedEarly | None], scenario: Scenario
) -> None:
    end = ended(scenario)
    assert end is None or end.left == []
    assert end is None or "Traceback" not in end.stderr


def test_sigterm_prints_the_requests_until_then(ended: Callable[[Scenario], EndedEarly]) -> None:
    end = ended(terminated)
    assert end.code == INTERRUPTED
    assert "incomplete: interrupted\n" in end.stdout
    unsent = re.search(
        r"^(\d+) requests were not sent, or have no record$", end.stdout, re.MULTILINE
    )
    assert unsent is not None
    assert 0 < int(unsent[1]) <= REQUESTS - end.served + SLACK
    assert re.search(r"^TTFT +\d+\.\d ", end.stdout, re.MULTILINE)


def test_an_endpoint_that_dies_is_named_as_the_cause(
    ended: Callable[[Scenario], EndedEarly],
) -> None:
    end = ended(died)
    assert end.code == BENCH
    cause = "the endpoint no longer serves: nothing listens there: connection refused"
    assert f"incomplete: {cause}\n" in end.stdout
    failed = re.search(rf"^failed: (\d+) of {REQUESTS} requests \((.*)\)", end.stdout, re.MULTILINE)
    assert failed is not None
    assert int(failed[1]) >= REQUESTS - end.served - SLACK
    assert "× no connection" in failed[2]
    assert re.search(r"^TTFT +\d+\.\d +\d+\.\d +- *$", end.stdout, re.MULTILINE)
    assert f"the run is incomplete: {cause}. Fix: Correct the cause" in end.stderr


def test_a_full_disk_ends_the_run(ended: Callable[[Scenario], EndedEarly | None]) -> None:
    end = ended(full_disk)
    if end is None:
        pytest.skip("this user may not mount a file system")
    assert end.code == BENCH
    cause = "AIPerf cannot write its files: no space is left on the file system"
    assert f"the run is incomplete: {cause}" in end.stderr or f": {cause}. Fix" in end.stderr
