"""The commands of README.md and docs/, in the order of each page, with copies of the graphs.

A page whose commands need an environment that is missing skips. Blocks that a comment excludes are
listed by `python -m tests.support.documents`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.environments import environments_root
from tests.support.documents import PAGES, Block, blocks
from tests.support.local_graphs import ROOT, assert_nothing_left

README = PAGES["README.md"]
RESPONSE = re.compile(r"The response is `([^`]+)`")
INSTALL = re.compile(r"penstock env install (\S+)")  # not run: CI installs the environments
EXIT_CODES = {
    "gpus=3": 14,
    "examples/dgd.yaml": 14,
    "examples/graph.yaml": 14,
}  # any other command: 0
# A command that contains the key prints the value.
PRINTED = {
    "scale": "decode.replicas: ",
    "status": "decode.0",
    "penstock verify": " 0 fail,",
    "logs": "decode.",
    "penstock ls": "quickstart",
    "down": "is down",
    "upgrade": "1.7.0.dev20261026",
    "--strict": "0 errors",
    "prefill.gpus=3": "64 attention heads",
    "--memory": "GiB",
    "penstock init": "checked: no errors",
    "penstock simulate": "SLO met",
    "penstock plan": "recommended: ",
}


def pages() -> dict[str, list[Block]]:
    """The blocks that are run, by page."""
    run = [block for block in blocks() if block.is_run]
    return {page: [b for b in run if b.page == page] for page in dict.fromkeys(b.page for b in run)}


def commands(page: str) -> list[str]:
    """uv is installed, and so are the environments."""
    found = [command for block in pages()[page] for command in block.commands()]
    return [c.removeprefix("pip install uv && ") for c in found if not INSTALL.search(c)]


def environments(page: str) -> set[str]:
    """The environments that the commands of a page need."""
    named = {name for b in pages()[page] for name in INSTALL.findall(b.text)}
    is_llamacpp = any("quickstart.yaml" in command for command in commands(page))
    return named | ({"llamacpp"} if is_llamacpp else set())


class Reader:
    """Runs commands in a folder with copies of the graphs; one graph is up at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.endpoint = ""
        self._up: list[str] = []
        (folder / "dynamo_graphs").mkdir()
        shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")
        shutil.copytree(ROOT / "k8s" / "gateway", folder / "k8s" / "gateway")
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


@pytest.mark.parametrize("page", list(pages()))
def test_the_commands_of_a_page_work_in_sequence(page: str, reader: Reader) -> None:
    for name in sorted(environments(page)):
        if not (environments_root() / name / "installed.txt").exists():
            pytest.skip(f"environment {name} is not installed: penstock env install {name}")
    for command in commands(page):
        output = reader.run(command.replace("requests=600", "requests=3"))  # can be reached here
        for words, printed in PRINTED.items():
            if words in command:
                assert printed in output, (command, output)
        if "chat/completions" in command:
            content = json.loads(output)["choices"][0]["message"]["content"]
            assert content == RESPONSE.search(PAGES[page])[1]  # type: ignore[index]
        if "v1/models" in command:
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
    first = [b for b in pages()["README.md"] if b.heading == "penstock"]
    verbs = [
        command.split("penstock ")[1].split()[0]
        for block in first
        for command in block.commands()
        if "uv run" in command
    ]
    assert verbs == ["up", "scale", "status", "verify", "logs", "ls", "down"]


def test_a_block_that_is_not_run_says_why_or_names_its_test() -> None:
    excluded = [block for block in blocks() if block.language == "bash" and not block.is_run]
    for block in excluded:
        assert len(block.reason) > 10, block
        assert block.test_file is None or block.test_file.is_file(), block
    run = [block for block in blocks() if block.is_run]
    assert len(run) > len(excluded) / 2


def test_every_block_has_a_language() -> None:
    known = {"bash", "json", "text", "yaml"}
    assert [(b.page, b.text) for b in blocks() if b.language not in known] == []
