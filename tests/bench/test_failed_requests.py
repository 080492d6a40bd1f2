"""Each kind of failure is counted exactly, and the other requests are measured.

The server requires an API key, which AIPerf must send too.
"""

from __future__ import annotations

import psutil
import pytest

from tests.bench.bench_runs import FIRST_INPUT, Finished, run_bench, write_workload
from tests.reports.read import charts_of
from tests.support.completions_server import End, Response
from tests.support.processes import command_of

pytestmark = pytest.mark.needs("aiperf")

REQUESTS, KEY, REPORT = 40, "an-api-key", "report.html"
FAILURES = [  # response, how many requests get it, and how it is reported
    (Response(status=500), 3, "HTTP 500"),
    (Response(status=429), 2, "HTTP 429"),
    (Response(status=503), 1, "HTTP 503"),
    (
        Response(end=End.WITHOUT_USAGE),
        2,
        "the response ended without a count of its tokens (`usage`)",
    ),
    (Response(end=End.CUT), 3, "the connection was closed during the response"),
    (Response(end=End.UNANSWERED), 2, "the connection was closed before the response"),
    (Response(end=End.SILENT), 2, "no complete response within --request-timeout"),
    (
        Response(missing_tokens=1),
        1,
        "the response had no tokens, or another number of tokens than requested",
    ),
]
RESPONSES = [response for response, count, _ in FAILURES for _ in range(count)]


commands: list[str] = []  # of all processes, during the run


def script(input_tokens: int) -> Response:
    if not commands:
        children = psutil.Process().children(recursive=True)
        commands.extend(" ".join(command_of(each)) for each in children)
    number = input_tokens - FIRST_INPUT
    return RESPONSES[number // 2] if number % 2 and number // 2 < len(RESPONSES) else Response()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("bench")
    workload = write_workload(folder, REQUESTS, output_tokens=10, every_ms=50.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        # The timeout applies also to the requests that do not fail, on a busy machine.
        limits = ("--request-timeout", "4s", "--ttft", "10s")
        limits += ("--report", str(folder / REPORT))
        return run_bench(folder, script, workload, *limits, key=KEY)


def test_each_kind_of_failure_is_counted(run: Finished) -> None:
    reasons = {reason: count for _, count, reason in FAILURES}
    assert run.document["failures"] == {"sent": REQUESTS, "reasons": reasons}
    assert run.document["unsent"] == 0


def test_the_report_shows_the_failures_and_no_key(run: Finished) -> None:
    text = (run.out.parent / REPORT).read_text("utf-8")
    assert "SLO missed: " in text
    charts = charts_of(text)
    (failures,) = [each for title, each in charts.items() if title.startswith("Failed requests")]
    counts = {trace["name"]: sum(trace["y"]) for trace in failures["data"]}
    assert sorted(counts.values()) == sorted(count for _, count, _ in FAILURES)
    assert counts["HTTP 500"] == 3
    assert KEY not in text


def test_too_many_failures_leave_no_p99(run: Finished) -> None:
    for name in ("ttft_ms", "itl_ms", "e2e_ms", "chunk_gap_ms"):
        assert run.document[name]["p99"] is None
        assert run.document[name]["p50"] > 0


def test_failed_requests_are_not_within_the_slo(run: Finished) -> None:
    assert run.document["goodput"] < 1
    assert run.document["meets_slo"] is False


def test_no_list_of_processes_shows_the_key(run: Finished) -> None:
    assert any("aiperf" in command for command in commands)
    assert not [command for command in commands if KEY in command]


def test_no_file_has_the_key(run: Finished) -> None:
    files = [path for path in run.out.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
