"""The command line and the environment variables of AIPerf."""

from pathlib import Path

import pytest

from penstock.bench.aiperf import Endpoint, Traffic, command, environment_of
from tests.bench.hand_written import request


def traffic_of(folder: Path, url: str = "http://h", concurrency: int | None = None) -> Traffic:
    return Traffic(
        endpoint=Endpoint(url=url, model="m"),
        requests={(f"c{n % 7}", n // 7): request(0.0) for n in range(14)},
        concurrency=concurrency,
        folder=folder,
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
    variables = environment_of(traffic_of(tmp_path, url), tmp_path / "scratch")
    assert ("AIPERF_HTTP_TRUST_ENV" in variables) == uses_proxy
    assert variables["HF_HOME"] == variables["TMPDIR"] == str(tmp_path / "scratch")


@pytest.mark.parametrize(
    ("concurrency", "options"),
    [
        # Without an offset, AIPerf shifts the first request to the start, so that the slices of
        # two targets overlap.
        (None, {"--fixed-schedule-start-offset": "0"}),
        (3, {"--concurrency": "3", "--num-sessions": "7"}),
    ],
)
def test_requests_are_sent_at_their_times_or_with_a_concurrency(
    concurrency: int | None, options: dict[str, str], tmp_path: Path
) -> None:
    argv = command(tmp_path / "python", traffic_of(tmp_path, concurrency=concurrency))
    assert {name: argv[argv.index(name) + 1] for name in options} == options
    assert ("--fixed-schedule" in argv) == (concurrency is None)
