"""The command line and the environment variables of AIPerf."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.bench.aiperf import Run, command, environment_of


def run_of(folder: Path, url: str = "http://h", concurrency: int | None = None) -> Run:
    return Run(
        url=url,
        model="m",
        trace=folder / "trace",
        folder=folder,
        conversations=7,
        concurrency=concurrency,
        timeout_s=1.0,
    )


@pytest.mark.parametrize(
    ("url", "uses_proxy"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000", False),
        ("https://llm.example", True),
    ],
)
def test_a_proxy_is_used_only_for_other_machines(
    url: str, uses_proxy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIPERF_HTTP_TRUST_ENV", raising=False)
    variables = environment_of(run_of(tmp_path, url), tmp_path / "scratch")
    assert ("AIPERF_HTTP_TRUST_ENV" in variables) == uses_proxy
    assert variables["HF_HOME"] == variables["TMPDIR"] == str(tmp_path / "scratch")


def option(argv: list[str], name: str) -> str | None:
    return argv[argv.index(name) + 1] if name in argv else None


def test_requests_are_sent_at_the_times_of_the_trace(tmp_path: Path) -> None:
    """Without an offset, AIPerf shifts the first request to the start, so that the slices of two
    targets overlap."""
    argv = command(tmp_path / "python", run_of(tmp_path))
    assert "--fixed-schedule" in argv
    assert option(argv, "--fixed-schedule-start-offset") == "0"


def test_a_fixed_concurrency_sends_each_conversation_once(tmp_path: Path) -> None:
    argv = command(tmp_path / "python", run_of(tmp_path, concurrency=3))
    assert option(argv, "--concurrency") == "3"
    assert option(argv, "--num-sessions") == "7"
    assert "--fixed-schedule" not in argv
