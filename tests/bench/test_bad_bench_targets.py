"""Targets and arguments with which `penstock bench` does not start AIPerf."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.bench_runs import write_workload
from tests.support.command_line import penstock
from tests.support.completions_server import CompletionsServer, Response
from tests.support.full_disk import small_disk

pytestmark = pytest.mark.needs("aiperf")

USAGE, INPUT, NOT_VERIFIED, BENCH = 2, 3, 13, 19


@pytest.fixture
def workload(tmp_path: Path) -> tuple[str, ...]:
    return write_workload(tmp_path / "workload", requests=4, output_tokens=2, every_ms=10.0)


def bench(server: CompletionsServer, *arguments: str) -> tuple[int, str]:
    """The exit code and the message; no request is sent."""
    with server.running():
        done = penstock("bench", server.url, *arguments)
    assert done.stdout == ""
    assert server.bodies == []
    return done.returncode, done.stderr


def server(key: str = "") -> CompletionsServer:
    return CompletionsServer(script=lambda _: Response(), key=key)


def test_nothing_listens(workload: tuple[str, ...]) -> None:
    with server().running() as ended:
        url = ended.url
    done = penstock("bench", url, *workload)
    assert done.returncode == NOT_VERIFIED
    assert f"{url}: nothing listens there: connection refused. Fix: Start" in done.stderr


@pytest.mark.parametrize("key", ["", "another-key"])
def test_a_missing_or_wrong_key(
    key: str, workload: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    code, message = bench(server(key="the-key"), *workload)
    assert code == NOT_VERIFIED
    assert "/v1/models returned HTTP 401" in message
    assert "Fix: Set the environment variable OPENAI_API_KEY" in message


def test_a_model_that_the_endpoint_does_not_list(workload: tuple[str, ...]) -> None:
    code, message = bench(server(), *workload, "--model", "missing")
    assert code == USAGE
    assert "--model: " in message
    assert "lists no model missing: scripted. Fix: Name one of them." in message


def test_a_folder_that_exists(workload: tuple[str, ...], tmp_path: Path) -> None:
    code, message = bench(server(), *workload, "--out", str(tmp_path))
    assert code == INPUT
    assert f"{tmp_path}: cannot be created: File exists. Fix: Name a new folder." in message


@pytest.mark.parametrize(
    ("requests", "kib", "cause"),
    [
        (40, 8, "out: the requests need 0.03 MB, and 0.01 MB are free. Fix: Send fewer requests"),
        (
            4,
            4,
            "out: AIPerf cannot write its files: no space is left on the file system. Fix: Free",
        ),
    ],
)
def test_a_full_disk(requests: int, kib: int, cause: str, tmp_path: Path) -> None:
    """The requests do not fit on it, or they fill it. AIPerf could send some if there were space
    until its first line of the log."""
    workload = write_workload(tmp_path / "workload", requests, output_tokens=2, every_ms=10.0)
    with small_disk(tmp_path / "disk", kib=kib) as disk:
        if disk is None:
            pytest.skip("this user may not mount a file system")
        code, message = bench(server(), *workload, "--out", str(disk / "out"))
    assert code == BENCH
    assert f"{disk}/{cause}" in message
    assert "on another" in message


def test_a_trace_without_output_tokens(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "workload", requests=2, output_tokens=0, every_ms=10.0)
    code, message = bench(server(), *workload)
    assert code == INPUT
    assert "trace.jsonl" in message
    assert "with output tokens" in message
    assert "Fix: " in message


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--request-timeout", "0s"), ("--concurrency", "0"), ("--rate", "0"), ("--attain", "0")],
)
def test_zero_is_no_value(flag: str, value: str, workload: tuple[str, ...]) -> None:
    code, message = bench(server(), *workload, flag, value)
    assert code == USAGE
    assert f"argument {flag}: {value!r} is not" in message


@pytest.mark.parametrize(
    ("arrivals", "words"),
    [
        ("arrival: {ladder: {rates: [1, 2], seconds: 9}}", "w has a ladder of rates"),
        (
            "arrival: {poisson: 1}\nconversation: {turns: 2, cached_output: true}",
            "Fix: Remove `conversation.cached_output` from w.",
        ),
    ],
)
def test_traffic_that_only_simulate_has_is_refused(
    arrivals: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"input: 9\noutput: 9\n{arrivals}\n")
    done = penstock("bench", "http://127.0.0.1:9", "--workload", str(path))
    assert done.returncode == USAGE
    assert words in done.stderr
