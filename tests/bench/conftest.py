"""`penstock bench` of a scripted server, with a program in place of AIPerf."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.bench.bench_runs import write_workload
from tests.bench.fake_aiperf import install
from tests.support.command_line import penstock
from tests.support.completions_server import CompletionsServer, Response


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A workload of 20 requests."""
    install(tmp_path / "environments")
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "environments"))
    return write_workload(tmp_path / "workload", 20, output_tokens=4, every_ms=100.0)


@pytest.fixture
def bench(arguments: tuple[str, ...]) -> Callable[..., CompletedProcess[str]]:
    """With a load generator that does something."""

    def run(does: str, *more: str, targets: int = 1) -> CompletedProcess[str]:
        server = CompletionsServer(script=lambda _: Response())
        with server.running() as target, pytest.MonkeyPatch.context() as patch:
            patch.setenv("FAKE_AIPERF", does)
            return penstock("bench", *[target.url] * targets, *arguments, *more, folder=Path.cwd())

    return run
