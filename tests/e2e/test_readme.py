"""The commands of the README's first screen, with a copy of the graph and a free port."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import httpx
import pytest

from penstock.drill.graph_process import GraphProcess
from penstock.environments import environments_root
from tests.support.local_graphs import ROOT, assert_nothing_left

README = (ROOT / "README.md").read_text()
COMMAND = re.compile(
    r"uv run penstock ((?:up|scale|status|down) dynamo_graphs/quickstart\.yaml[^\n#`]*)"
)
CURL = re.compile(r"curl http://127\.0\.0\.1:8000(\S+) .*?-d '(\{.*?\})'", re.DOTALL)
RESPONSE = re.compile(r"The response is `([^`]+)`")


def test_the_commands_of_the_first_screen_work(tmp_path: Path) -> None:
    if not (environments_root() / "llamacpp" / "installed.txt").exists():
        pytest.skip("the llamacpp environment is not installed: penstock env install llamacpp")
    graph_file = tmp_path / "quickstart.yaml"
    graph_file.write_text((ROOT / "dynamo_graphs" / "quickstart.yaml").read_text())
    first_screen = README[: README.index("## How it works")]
    commands = [shlex.split(words) for words in COMMAND.findall(first_screen)]
    assert [words[0] for words in commands] == ["up", "scale", "status", "down"]
    graph = GraphProcess(graph_file, tmp_path)

    def run(words: list[str], *more: str) -> str:
        here = [str(graph_file) if w == "dynamo_graphs/quickstart.yaml" else w for w in words]
        done = graph.penstock(*here, *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    up, scale, status, down = commands
    output = run(up, "--port", "0", "--detach")
    try:
        endpoint = re.search(r"http://127.0.0.1:\d+", output)
        assert endpoint is not None
        path, body = CURL.search(first_screen).groups()  # type: ignore[union-attr]
        answer = httpx.post(endpoint[0] + path, json=json.loads(body), timeout=60)
        expected = RESPONSE.search(first_screen)
        assert expected is not None
        assert answer.json()["choices"][0]["message"]["content"] == expected[1]
        assert "decode.replicas: 2" in run(scale)
        assert "decode.0" in run(status)
    finally:
        run(down)
    assert_nothing_left(tmp_path)
