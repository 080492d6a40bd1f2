"""The README's commands in its own order, one section after another, with copies of the graphs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.environments import environments_root
from tests.support.local_graphs import ROOT, assert_nothing_left, require_envoy

README = (ROOT / "README.md").read_text()
FIRST, GATEWAY = "penstock", "API keys and limits"
FENCE = re.compile(r"^```\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
RESPONSE = re.compile(r"The response is `([^`]+)`")
# A command that contains the words is not run here.
ELSEWHERE = {
    "env install": "downloads packages; CI installs the environments",
    "helm install": "needs a cluster",
    "penstock apply": "needs a cluster",
    "--cluster": "needs a cluster",
    "penstock rollback": "needs a cluster",
    "tiny-model": "tests/e2e/test_cpu_engine.py writes it and runs cpu-disagg.yaml",
    "cpu-disagg.yaml": "takes 78 s; tests/e2e/test_cpu_engine.py runs it",
    "penstock simulate": "takes minutes; tests/simulate replays",
    "penstock plan": "takes minutes; tests/plan replays",
    "planned.yaml": "the command before it, which is not run, writes the file",
}
EXIT_CODES = {"--set prefill.gpus=3": 14}  # any other command: 0
# A command that contains the key prints the value.
PRINTED = {
    "scale": "decode.replicas: 2",
    "status": "decode.1",
    "penstock verify": " 0 fail,",
    "logs": "decode.1",
    "penstock ls": "quickstart",
    "down": "is down",
    "upgrade": "1.7.0.dev20261026",
    "--strict": "0 errors",
    "prefill.gpus=3": "64 attention heads",
    "--explain": "PS407",
    "--memory": "GiB",
}


def sections() -> dict[str, list[str]]:
    """The shell commands under each heading; those under the title are the first screen."""
    found = {}
    for part in re.split(r"^##? ", README, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        blocks = [block for block in FENCE.findall(text) if re.match("[a-z]+ ", block)]
        commands = [command for block in blocks for command in _commands(block)]
        if commands:
            found[heading] = commands
    return found


def _commands(block: str) -> list[str]:
    """One command a line, except the one with a body in several lines. uv is installed."""
    if block.startswith("curl "):
        return [block]
    lines = block.removeprefix("pip install uv && ").replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+# .*", "", line).strip() for line in lines]


def is_elsewhere(command: str) -> bool:
    return any(words in command for words in ELSEWHERE)


class Reader:
    """Runs commands in a folder with copies of the graphs; one graph is up at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.endpoint = ""
        self._up: list[str] = []
        (folder / "dynamo_graphs").mkdir()
        for graph in (ROOT / "dynamo_graphs").glob("*.yaml"):
            # `verify` fills the context once, which takes 5 s of CPU time less with 512 tokens.
            text = graph.read_text().replace("context_length: 2048 ", "context_length: 512 ")
            (folder / "dynamo_graphs" / graph.name).write_text(text)

    def run(self, command: str) -> str:
        """Its output. `up` returns when it is ready, and its port is free and not 8000."""
        line = command.replace("http://127.0.0.1:8000", self.endpoint)
        if "penstock up " in line:
            self._up = re.sub(r".*penstock up (\S+).*?((?: --set \S+)*)$", r"\1\2", line).split()
            line += " --detach --port 0"
        python = f"{sys.executable} -m penstock.cli.main"
        done = subprocess.run(
            ["bash", "-c", line.replace("uv run penstock", python)],
            cwd=self.folder,
            env={
                **os.environ,
                "PENSTOCK_STATE_HOME": str(self.folder / "state"),
                "PENSTOCK_ENVIRONMENTS": str(environments_root()),
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        expected = next((code for words, code in EXIT_CODES.items() if words in line), 0)
        assert done.returncode == expected, (command, done.stdout, done.stderr)
        ready = re.search(r"ready: (http://127\.0\.0\.1:\d+)/v1", done.stdout)
        if ready and "penstock up " in line:
            self.endpoint = ready[1]
        return done.stdout

    def down(self) -> None:
        if self._up:
            self.run(f"uv run penstock down {' '.join(self._up)} || true")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.down()
    assert_nothing_left(tmp_path)


def _require(heading: str) -> None:
    """Skip where an environment that the section uses is missing."""
    if heading == GATEWAY:
        require_envoy()
    is_installed = (environments_root() / "llamacpp" / "installed.txt").exists()
    if heading in (FIRST, GATEWAY) and not is_installed:
        pytest.skip("the llamacpp environment is not installed: penstock env install llamacpp")


@pytest.mark.parametrize("heading", list(sections()))
def test_the_commands_of_a_section_work_in_sequence(heading: str, reader: Reader) -> None:
    _require(heading)
    commands = sections()[heading]
    if all(map(is_elsewhere, commands)):
        pytest.skip("; ".join({r for w, r in ELSEWHERE.items() if any(w in c for c in commands)}))
    for command in commands:
        if is_elsewhere(command):
            continue
        output = reader.run(command.replace("requests=600", "requests=3"))  # can be reached here
        for words, printed in PRINTED.items():
            if words in command:
                assert printed in output, (command, output)
        if "chat/completions" in command:
            content = json.loads(output)["choices"][0]["message"]["content"]
            assert content == RESPONSE.search(README)[1]  # type: ignore[index]
    if heading == GATEWAY:
        _limits_are_enforced(reader)


def _limits_are_enforced(reader: Reader) -> None:
    """401 without a key; 429 for the fourth request, of which the README's curl was the first."""
    url = f"{reader.endpoint}/v1/models"
    key = (reader.folder / "keys.env").read_text().strip().removeprefix("team-a=")
    with httpx.Client(trust_env=False) as client:
        assert client.get(url).status_code == 401
        headers = {"Authorization": f"Bearer {key}"}
        answers = [client.get(url, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert answers[-1].json()["error"]["code"] == "rate_limit_exceeded"


def test_the_first_screen_verifies_after_it_scales() -> None:
    """So that the test above covers it."""
    verbs = [c.split("penstock ")[1].split()[0] for c in sections()[FIRST] if "uv run" in c]
    assert verbs == ["up", "scale", "status", "verify", "logs", "ls", "down"]


def test_most_commands_of_the_readme_are_run() -> None:
    commands = [command for found in sections().values() for command in found]
    run = [command for command in commands if not is_elsewhere(command)]
    assert len(run) >= 14, commands
    unused = [w for w in ELSEWHERE if not any(w in command for command in commands)]
    assert unused == []
