"""penstock from a wheel, without the repository, as the README installs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
OVERRIDES = ROOT / "components" / "uv-overrides.txt"


def run(*command: str | Path, folder: Path) -> str:
    """The output; fails with all of it."""
    own = ("VIRTUAL_ENV", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if name not in own}
    argv = [str(word) for word in command]
    done = subprocess.run(argv, cwd=folder, env=env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", name="environment")
def fixture_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel and what it needs."""
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    run("uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT, folder=folder)
    (wheel,) = folder.glob("penstock-*.whl")
    tools = [f"UV_TOOL_DIR={folder / 'tools'}", f"UV_TOOL_BIN_DIR={folder / 'bin'}"]
    install = ["uv", "tool", "install", "--quiet", "--python", sys.executable]
    run("env", *tools, *install, "--overrides", OVERRIDES, wheel, folder=folder)
    return folder / "tools" / "penstock"


def test_the_wheel_has_the_graphs_and_the_chart(environment: Path) -> None:
    (package,) = environment.glob("lib/python*/site-packages/penstock")
    for inner, source in (("graphs", "dynamo_graphs"), ("chart", "helm/penstock")):
        files = {p.relative_to(ROOT / source) for p in (ROOT / source).rglob("*") if p.is_file()}
        assert files
        for file in files:
            assert (package / inner / file).read_bytes() == (ROOT / source / file).read_bytes()


def test_a_graph_runs_without_the_repository(environment: Path, tmp_path: Path) -> None:
    penstock = environment / "bin" / "penstock"
    graph = "quickstart-simulated.yaml"
    run(penstock, "init", "--example", "quickstart-simulated", folder=tmp_path)
    assert "0 errors" in run(penstock, "check", graph, folder=tmp_path)
    assert "kind: DynamoGraphDeployment" in run(penstock, "render", graph, folder=tmp_path)
    run(penstock, "up", graph, "--detach", "--port", "0", folder=tmp_path)
    try:
        url = json.loads(run(penstock, "status", graph, "--json", folder=tmp_path))["endpoint"]
        body = {
            "model": "openai/gpt-oss-20b",
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 8,
        }
        response = httpx.post(f"{url}/chat/completions", json=body, timeout=60, trust_env=False)
        assert response.status_code == 200, response.text
        assert response.json()["usage"]["completion_tokens"] == 8
    finally:
        run(penstock, "down", graph, folder=tmp_path)
