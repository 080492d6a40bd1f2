"""`top --web` and `bench` install the environment that they need, after they said its size."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli import arguments, top
from penstock.cli.top import source_of
from penstock.environments.install import Environment
from penstock.errors import MissingToolError, NotUpError
from penstock.local import missing_environment
from tests.support.command_line import penstock

PAGE = ("top", "--web", "dynamo_graphs/quickstart.yaml")
BENCH = ("bench", "http://127.0.0.1:9", "--workload", "short-chat")
AGENTPERF = (
    "bench",
    "public",
    "http://127.0.0.1:9",
    "--method",
    "artificial-analysis",
    "--part",
    "agentperf",
)
CASES = [
    (PAGE, "page", "82 MB"),
    (BENCH, "aiperf", "0.8 GB"),
    (AGENTPERF, "agentperf", "0.1 GB"),
    (("up", PAGE[2], "--engine", "mocker", "--page"), "page", "82 MB"),
]  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the environments that would be installed."""
    names: list[str] = []

    def install(environment: Environment, *, quiet: bool) -> str:
        names.append(environment.name)
        return "installed"

    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "none"))
    monkeypatch.setattr(missing_environment, "install", install)
    monkeypatch.setattr(top, "source_of", lambda *_: None)  # of a graph that is up
    return names


@pytest.mark.parametrize(("words", "name", "size"), CASES)
def test_a_missing_environment_is_installed_after_its_size_is_printed(
    words: tuple[str, ...], name: str, size: str, installed: list[str]
) -> None:
    done = penstock(*words)
    assert installed == [name]
    first = f"installing environment {name} ({size}; disable with --no-install)\ninstalled\n"
    assert first in done.stderr


@pytest.mark.parametrize(("words", "name", "size"), CASES)
def test_with_no_install_it_is_an_error(
    words: tuple[str, ...], name: str, size: str, installed: list[str]
) -> None:
    done = penstock(*words, "--no-install")
    assert (done.returncode, installed) == (8, [])
    assert f"Run `penstock tools env install {name}` ({size}, once)" in done.stderr


def test_nothing_is_installed_for_the_page_of_a_graph_that_is_not_up(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "source_of", source_of)
    assert penstock(*PAGE).returncode == NotUpError.exit_code
    assert installed == []


def test_nothing_is_installed_for_arguments_that_do_not_fit(installed: list[str]) -> None:
    assert penstock(*BENCH[:-1], "none").returncode == 3
    assert penstock(*BENCH, "--gap", "2s").returncode == 2
    assert installed == []


@pytest.mark.parametrize("no_install", [False, True])
def test_a_tool_is_required_whether_or_not_it_is_installed(
    no_install: bool, installed: list[str]
) -> None:
    """Its module can need more than its environment, such as a vocabulary."""

    def require_environment() -> Path:
        raise MissingToolError("the vocabulary is missing")

    tool = SimpleNamespace(NAME="aiperf", SIZE="1 GB", require_environment=require_environment)
    args = Namespace(no_install=no_install, quiet=False)
    with pytest.raises(MissingToolError, match="vocabulary"):
        arguments.require_tool(args, tool)
    assert installed == ([] if no_install else ["aiperf"])
