"""The environment variables of AIPerf."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.bench.aiperf import Run, environment_of


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
    run = Run(
        url=url,
        model="m",
        trace=tmp_path / "trace",
        folder=tmp_path,
        requests=1,
        concurrency=None,
        timeout_s=1.0,
    )
    found = environment_of(run, tmp_path / "home")
    assert ("AIPERF_HTTP_TRUST_ENV" in found) == uses_proxy
    assert found["HF_HOME"] == str(tmp_path / "home")
