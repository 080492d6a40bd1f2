"""The commands of README.md and docs/, in the order of each page, with copies of the graphs.

A test needs the environments of its commands. `make nightly` runs the blocks that
take longer, each by itself. `python -m tests.support.documents` lists them, and those that run
elsewhere.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.environments import environments_root
from tests.support.command_line import penstock
from tests.support.documents import ENVIRONMENT, PAGES, Block, blocks
from tests.support.local_graphs import ROOT, assert_nothing_left

README = PAGES["README.md"]
NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
PENSTOCK = "uv run penstock "
SHELL = re.compile(r"[|&;<>$*\n]")
RESPONSE = re.compile(r"response is `([^`]+)`")
# A command that contains the key needs the environment.
NEEDED = {"quickstart.yaml": "llamacpp", "penstock plan": "sim"}
# Why a block is not run, and what it contains then.
EXCLUDED = {
    # What the emulated cluster can do runs in tests/kubernetes/cluster/test_documents.py.
    "needs a cluster": r"kubectl|helm test|KUBECONFIG=|https://HOST",
    "installs the machine that the tests run on": "make environments",
    "clones a repository from the internet": "git clone https://",
}
EXIT_CODES = {
    "gpus=3": 14,
    "examples/dgd.yaml": 14,
    "examples/graph.yaml": 14,
}  # any other command: 0
# A command that contains the key prints the value.
PRINTED = {
    "penstock scale": "decode.replicas: ",
    "status": "decode.0",
    "penstock verify": " 0 fail,",
    "logs": "decode.",
    "penstock ls": "quickstart",
    "down": "is down",
    "upgrade": "Dynamo 1.6.1 → 1.7.0",
    "--strict": "0 errors",
    "prefill.gpus=3": "64 attention heads",
    "--memory": "GiB",
    "penstock init": "checked: no errors",
    "penstock simulate": "SLO met",
    "penstock plan": "recommended: ",
}


# Of `verify`. test_llamacpp.py runs the others, which generate more tokens, on the same graph; its
# test for `make nightly` runs all.
PROBES = ("models", "unknown-model", "topology", "streaming", "greedy", "cancel", "migration")


def pages() -> dict[str, list[Block]]:
    """The blocks that are run, by page."""
    run = [block for block in blocks() if block.is_run]
    return {page: [b for b in run if b.page == page] for page in dict.fromkeys(b.page for b in run)}


IN_CI = ("README.md", "docs/tutorial.md")
NIGHTLY = [block for block in blocks() if block.is_nightly]


def commands(run: list[Block]) -> list[str]:
    return [command for block in run for command in block.run_commands()]


def marks(run: list[Block]) -> list[pytest.MarkDecorator]:
    """The environments that the commands of the blocks need."""
    named = {name for b in run for name in ENVIRONMENT.findall(b.text)}
    named |= {name for words, name in NEEDED.items() for c in commands(run) if words in c}
    found = [pytest.mark.needs(*sorted(named))] if named else []
    # Its commands are in the README too, or start graphs for half a minute.
    return found if run[0].page in IN_CI else [*found, pytest.mark.nightly]


def test_a_reader_of_both_pages_creates_each_file_once() -> None:
    """`init` refuses to overwrite the file of the page before."""
    created = [
        name
        for page in IN_CI
        for command in commands(pages()[page])
        for name in re.findall(r"penstock init (\S+)", command)
    ]
    assert len(created) >= 2
    assert sorted(set(created)) == sorted(created)


def is_about_a_running_graph(command: str) -> bool:
    return "dynamo_graphs/quickstart.yaml" in command or "http://127.0.0.1:8000" in command


# Command about a running graph → its output. The tutorial has commands of the README, with which
# it would start the same graph a second time.
seen: dict[str, str] = {}


class Reader:
    """Runs commands in a folder with copies of the graphs; one graph is up at a time.

    `penstock` runs in this process, except `up` and with what only a shell does.
    """

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
        is_plain = line.startswith(PENSTOCK) and not SHELL.search(line) and " up " not in line
        if is_plain:
            words = shlex.split(line.removeprefix(PENSTOCK))
            done = penstock(*words, folder=self.folder)
        else:
            done = self._in_shell(line)
        expected = next((code for words, code in EXIT_CODES.items() if words in line), 0)
        assert done.returncode == expected, (command, done.stdout, done.stderr)
        ready = re.search(r"ready: (http://127\.0\.0\.1:\d+)/v1", done.stdout)
        if ready and "penstock up " in line:
            self.endpoint = ready[1]
        return done.stdout

    def _in_shell(self, line: str) -> subprocess.CompletedProcess[str]:
        python = f"{sys.executable} -m penstock.cli.main "
        return subprocess.run(
            ["bash", "-c", line.replace(PENSTOCK, python)],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def down(self) -> None:
        if self._up:
            self.run(f"uv run penstock down {' '.join(self._up)} || true")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(environments_root()))
    reader = Reader(tmp_path)
    yield reader
    reader.down()
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks(run)) for page, run in pages().items()]
)
def test_the_commands_of_a_page_work_in_sequence(page: str, reader: Reader) -> None:
    printed = ""
    for command in commands(pages()[page]):
        if command in seen:
            printed += seen[command]
            continue
        if command == "uv run penstock verify dynamo_graphs/quickstart.yaml":
            shorter = " --only ".join((command, *PROBES))
        else:
            shorter = command.replace("requests=600", "requests=3")  # can be reached here
        output = reader.run(shorter)
        printed += output
        if is_about_a_running_graph(command):
            seen[command] = output
        _is_printed(command, output)
        if "chat/completions" in command:
            content = json.loads(output)["choices"][0]["message"]["content"]
            assert content == RESPONSE.search(PAGES[page])[1]  # type: ignore[index]
        if "v1/models" in command:
            _limits_are_enforced(reader)
    printed = re.sub(r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:8000", printed)
    shown = [b.text for b in blocks() if b.page == page and b.part_of]
    assert [text for text in shown if not _is_part_of(text, printed)] == []


def _is_part_of(text: str, printed: str) -> bool:
    """Whether the output has the text, with numbers that differ by at most 5%: the KV router breaks
    ties randomly, so replays of the same requests differ."""
    words = NUMBER.split(" ".join(text.split()))  # every second one is a number
    pattern = NUMBER.pattern.join(re.escape(one) for one in words[::2])
    found = re.finditer(pattern, " ".join(printed.split()))
    shown = [float(one) for one in words[1::2]]
    return any(shown == pytest.approx(list(map(float, one.groups())), rel=0.05) for one in found)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "block", [pytest.param(b, id=f"{b.page}: {b.heading}", marks=marks([b])) for b in NIGHTLY]
)
def test_the_commands_of_a_long_block_work(block: Block, reader: Reader) -> None:
    for command in commands([block]):
        _is_printed(command, reader.run(command))


def _is_printed(command: str, output: str) -> None:
    for words, printed in PRINTED.items():
        if words in command:
            assert printed in output, (command, output)


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


def test_a_block_is_excluded_only_for_what_it_contains() -> None:
    excluded = [block for block in blocks() if block.is_excluded]
    assert [b for b in excluded if not re.search(EXCLUDED[b.reason], b.text)] == []


def words_of(command: str) -> list[str]:
    """The program's subcommands and options: what a test that runs the command has to contain."""
    words = shlex.split(command.removeprefix("uv run "))
    arguments = (n for n, word in enumerate(words) if not re.fullmatch("[a-z][a-z-]*", word))
    leading = next(arguments, len(words))
    return [*words[:leading], *(word for word in words[leading:] if word.startswith("-"))]


def words_in(test: Path) -> set[str]:
    """The words in the strings of a test, of its folder's fixtures, and of what they import."""
    files = [file for file in (test, test.with_name("conftest.py")) if file.is_file()]
    words = {word for file in files for word in _strings(file)}
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))):
        if isinstance(node, ast.ImportFrom) and node.module:
            path = Path(*node.module.split(".")).with_suffix(".py")
            words |= {s for f in (ROOT, ROOT / "benchmarks") for s in _strings(f / path)}
    return words


def _strings(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8") if path.is_file() else "")
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {word for value in constants if isinstance(value, str) for word in value.split()}


def not_run_by(block: Block, test: Path) -> set[str]:
    """What the commands of a block contain and the test that the block names does not.

    A test that takes its commands from the documents has them all.
    """
    if test == Path(__file__):
        run = [set(words_of(c)) for page in pages() for c in commands(pages()[page])]
        return {c for c in block.commands() if not any(set(words_of(c)) <= words for words in run)}
    if "b.test_file == Path(__file__)" in test.read_text("utf-8"):
        return set()
    known = {*words_in(test), "penstock"}
    return {word for c in block.commands() for word in words_of(c) if word not in known}


@pytest.mark.parametrize(
    "block",
    [block for block in blocks() if block.test_file],
    ids=lambda b: f"{b.page}: {b.heading}",
)
def test_a_block_that_runs_elsewhere_has_its_commands_in_the_test(block: Block) -> None:
    assert block.test_file is not None
    assert not_run_by(block, block.test_file) == set()


def test_a_test_without_the_commands_of_a_block_is_reported() -> None:
    block = next(b for b in blocks() if b.page == "docs/simulate.md" and "--router" in b.text)
    other = ROOT / "tests" / "cli" / "test_simulate.py"
    assert not_run_by(block, other) >= {"plan", "--router"}
    assert not_run_by(block, Path(__file__)) == set(block.commands())


def test_every_block_has_a_language() -> None:
    known = {"bash", "json", "promql", "text", "yaml"}
    assert [(b.page, b.text) for b in blocks() if b.language not in known] == []
