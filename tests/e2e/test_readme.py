"""The commands of the README's first screen, with another folder and a free port."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import httpx

from penstock.drill.graph_process import GraphProcess
from tests.support.local_graphs import ROOT, assert_nothing_left, without_envoy

README = (ROOT / "README.md").read_text()
COMMAND = re.compile(r"uv run penstock ((?:up|scale|status|down) dynamo_graphs/quickstart[^\n#`]*)")
CURL = re.compile(r"curl http://127\.0\.0\.1:8000(\S+) .*?-d '(\{.*?\})'", re.DOTALL)


def test_the_commands_of_the_first_screen_work(quickstart: Path, tmp_path: Path) -> None:
    commands = [shlex.split(words) for words in COMMAND.findall(README)]
    assert [words[0] for words in commands] == ["up", "scale", "status", "down"]
    graph = GraphProcess(quickstart, tmp_path, env=without_envoy(tmp_path))

    def run(words: list[str], *more: str) -> str:
        here = [str(quickstart) if w == "dynamo_graphs/quickstart.yaml" else w for w in words]
        done = graph.penstock(*here, *more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    up, scale, status, down = commands
    output = run(up, "--port", "0", "--detach")
    try:
        endpoint = re.search(r"http://127.0.0.1:\d+", output)
        assert endpoint is not None
        path, body = CURL.search(README).groups()  # type: ignore[union-attr]
        answer = httpx.post(endpoint[0] + path, json=json.loads(body), timeout=60)
        assert answer.json()["usage"]["completion_tokens"] == 16
        assert "decode.replicas: 4" in run(scale)
        assert "decode.0" in run(status)
    finally:
        run(down)
    assert_nothing_left(tmp_path)
