"""penstock without a checkout: as the hook of docs/check.md, which pre-commit installs with pip."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from penstock.errors import MissingToolError
from tests.support.documents import PAGES
from tests.support.repository import ROOT, Workplace

EXAMPLE = "quickstart-simulated"


class User(Workplace):
    """A user who has a repository of graphs, and no environment of penstock."""

    def __init__(self, folder: Path) -> None:
        variables = {
            "PRE_COMMIT_HOME": str(folder / "pre-commit"),
            "PENSTOCK_ENVIRONMENTS": str(folder / "environments"),
            "PENSTOCK_STATE_HOME": str(folder / "state"),
            "UV_COMPILE_BYTECODE": "0",  # takes longer than the test
        }
        dropped = ("PENSTOCK_", "PYTHON", "VIRTUAL_ENV", "XDG_")
        super().__init__(folder / "theirs", "a user", *dropped, **variables)
        (self.folder / "deployments").mkdir(parents=True)


def repository(folder: Path, user: User) -> str:
    """A repository with the files of this one as they are now; its commit."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "benchmarks/r")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git: tuple[str | Path, ...] = ("git", "-C", folder)
    user.run("git", "init", "--quiet", folder)
    user.run(*git, "add", "--all", "--force")
    user.run(*git, "commit", "--quiet", "--message", "a release")
    return user.run(*git, "rev-parse", "HEAD").strip()


@pytest.fixture(scope="module", name="user")
def fixture_user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has the hook, installed, and one graph with no finding."""
    folder = tmp_path_factory.mktemp("wheel")
    user = User(folder)
    commit = repository(folder / "penstock", user)
    text = next(b for b in PAGES["docs/check.md"].split("```yaml\n") if "pre-commit-config" in b)
    hook = text.partition("```")[0].replace("URL-OF-THIS-REPOSITORY", str(folder / "penstock"))
    config = user.folder / ".pre-commit-config.yaml"
    config.write_text(hook.replace("TAG-OR-COMMIT", commit))
    user.run("git", "init", "--quiet")
    user.run("git", "add", "--all")
    user.run(sys.executable, "-m", "pre_commit", "install-hooks")
    return user


@pytest.fixture(scope="module", name="penstock")
def fixture_penstock(user: User) -> Path:
    """The program that pip installed for the hook."""
    (program,) = Path(user.environ["PRE_COMMIT_HOME"]).glob("repo*/py_env-*/bin/penstock")
    return program


def test_the_hook_refuses_a_wrong_graph(user: User, penstock: Path) -> None:
    graph = user.folder / "deployments" / f"{EXAMPLE}.yaml"
    user.run(penstock, "init", graph, "--example", EXAMPLE)
    user.run("git", "add", "--all")
    hook = (sys.executable, "-m", "pre_commit", "run")
    assert "Passed" in user.run(*hook)
    values = yaml.safe_load(graph.read_text())
    graph.write_text(yaml.safe_dump({**values, "decode": {"replicas": "two"}}))
    user.run("git", "add", "--all")
    refused = user.run(*hook, code=1)
    assert 'decode.replicas: must be an integer, got the string "two"' in refused
    graph.unlink()


def test_the_wheel_has_the_graphs_and_the_chart(penstock: Path) -> None:
    (package,) = penstock.parents[1].glob("lib/python*/site-packages/penstock")
    for inner, source in (("graphs", "dynamo_graphs"), ("chart", "helm/penstock")):
        files = {p.relative_to(ROOT / source) for p in (ROOT / source).rglob("*") if p.is_file()}
        assert files
        for file in files:
            assert (package / inner / file).read_bytes() == (ROOT / source / file).read_bytes()


def test_dynamo_is_not_needed_to_write_check_render_and_explain(user: User, penstock: Path) -> None:
    asked = ("--model", "gpt-oss-120b", "--gpu", "h200", "--gpus", "16", "--workload", "short-chat")
    user.run(penstock, "init", "first.yaml", *asked, "--concurrency", "32")
    user.run(penstock, "init", "second.yaml", *asked, "--concurrency", "64")
    assert "0 errors" in user.run(penstock, "check", "first.yaml")
    assert "kind: DynamoGraphDeployment" in user.run(penstock, "render", "first.yaml")
    assert "Role:          frontend" in user.run(penstock, "explain", "first.yaml")
    assert "scaled 8" in user.run(penstock, "diff", "first.yaml", "--from", "second.yaml", code=1)
    assert not Path(user.environ["PENSTOCK_ENVIRONMENTS"]).exists()


def test_up_installs_dynamo_and_serves(user: User, penstock: Path) -> None:
    graph = f"{EXAMPLE}.yaml"
    user.run(penstock, "init", "--example", EXAMPLE)
    up = (penstock, "up", graph, "--detach", "--port", "0")
    user.run(*up, "--no-install", code=MissingToolError.exit_code)
    user.run(*up)
    try:
        url = json.loads(user.run(penstock, "status", graph, "--json"))["endpoint"]
        body = {
            "model": "openai/gpt-oss-20b",
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 8,
        }
        response = httpx.post(f"{url}/chat/completions", json=body, timeout=60, trust_env=False)
        assert response.status_code == 200, response.text
        assert response.json()["usage"]["completion_tokens"] == 8
    finally:
        user.run(penstock, "down", graph)
