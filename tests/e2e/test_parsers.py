"""Dynamo's gpt_oss and harmony parsers through the real frontend, fed by a scripted worker.

Its answers are replayed whole, token by token, and cut once at every place between two tokens.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tokenizers import Tokenizer

from penstock.environments.harmony import vocabulary
from penstock.local.ports import Ports
from penstock.tokenizer import FOLDER
from tests.e2e.chats import merged
from tests.support.dynamo_processes import dynamo_processes
from tests.support.local_graphs import QUICKSTART
from tests.support.needs import needed_by_its_tests

WORKER = Path(__file__).with_name("scripted_worker.py")
REASONING = (
    "<|channel|>analysis<|message|>Eleven has two divisors.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Yes, eleven is prime.<|return|>"
)
TOOL = (
    "<|channel|>analysis<|message|>I look it up.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city": "Oslo"}<|call|>'
)
SCRIPTS = {"reasoning": REASONING, "tool": TOOL}
PARSERS = ("--dyn-reasoning-parser", "gpt_oss", "--dyn-tool-call-parser", "harmony")
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def _boundaries(script: str) -> range:
    tokens = Tokenizer.from_file(str(FOLDER / "tokenizer.json")).encode(SCRIPTS[script]).ids
    return range(1, len(tokens))


@contextmanager
def _served(folder: Path, *parsers: str, encodings: Path | None) -> Iterator[tuple[str, Path]]:
    """A frontend and one scripted worker on loopback; yields its URL and the frontend's log."""
    scripts = folder / "scripts.yaml"
    scripts.write_text(yaml.safe_dump(SCRIPTS))
    worker = (
        str(WORKER), "--model-path", str(FOLDER), "--model-name", "scripted",
        "--script", str(scripts), *parsers,
    )  # fmt: skip
    extra = {"TIKTOKEN_ENCODINGS_BASE": str(encodings)} if encodings is not None else {}
    with dynamo_processes(
        folder,
        "scripted",
        {"worker": worker},
        Ports(),
        variables={"frontend": extra, "worker": extra},
    ) as url:
        yield url, folder / "frontend.log"


def _ask(url: str, script: str, how: str, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": "scripted",
        "messages": [{"role": "user", "content": f"the {script} script{how}"}],
        "tools": [WEATHER],
        "stream": stream,
    }
    with httpx.Client(timeout=30, trust_env=False, verify=False) as client:
        return merged(client.post(f"{url}/chat/completions", json=body), stream=stream)


EXPECTED = {
    "reasoning": {
        "content": "Yes, eleven is prime.",
        "reasoning": "Eleven has two divisors.",
        "calls": [],
        "finish": ["stop"],
    },
    "tool": {
        "content": "",
        "reasoning": "I look it up.",
        "calls": [("get_weather", {"city": "Oslo"})],
        "finish": ["tool_calls"],
    },
}


@pytest.fixture(scope="module")
@needed_by_its_tests("harmony")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with _served(tmp_path_factory.mktemp("parsed"), *PARSERS, encodings=vocabulary()) as served:
        yield served


@pytest.mark.needs("harmony")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("script", list(SCRIPTS))
def test_reasoning_content_and_call_are_separated_at_every_chunk_boundary(
    parsed: tuple[str, Path], script: str, stream: bool
) -> None:
    ways = ["", " every=1", *(f" cut={at}" for at in _boundaries(script))]
    assert len(ways) > 20
    wrong = {
        how: got
        for how in ways
        if (got := _ask(parsed[0], script, how, stream)) != EXPECTED[script]
    }
    assert wrong == {}


def _verify(url: str, log: Path, folder: Path) -> dict[str, dict[str, str]]:
    """The two parser probes against a graph that names both parsers."""
    graph = folder / "says.yaml"
    text = (QUICKSTART.parent / "gpt-oss-120b-b200-disagg.yaml").read_text()
    assert "reasoning_parser: gpt_oss" in text
    graph.write_text(text)
    command = [sys.executable, "-m", "penstock.cli.main", "verify", url, "--graph", str(graph)]
    command += ["--only", "reasoning-parser", "--only", "tool-call-parser", "--log", str(log)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    return {probe["name"]: probe for probe in json.loads(done.stdout)["probes"]}


def test_verify_fails_where_the_worker_runs_without_the_parsers(tmp_path: Path) -> None:
    with _served(tmp_path, encodings=None) as (url, log):
        probes = _verify(url, log, tmp_path)
    assert {probe["verdict"] for probe in probes.values()} == {"fail"}
    assert "--dyn-reasoning-parser gpt_oss" in probes["reasoning-parser"]["hint"]
    assert "--dyn-tool-call-parser harmony" in probes["tool-call-parser"]["hint"]


def test_without_their_vocabulary_the_parsers_lose_the_call_and_verify_reports_it(
    tmp_path: Path,
) -> None:
    """What an air-gapped cluster gets: status 200 and an empty message. An empty folder
    replaces the missing network."""
    empty = tmp_path / "no-encodings"
    empty.mkdir()
    with _served(tmp_path, *PARSERS, encodings=empty) as (url, log):
        got = _ask(url, "tool", "", stream=False)
        assert (got["content"], got["reasoning"], got["calls"]) == ("", "", [])
        probes = _verify(url, log, tmp_path)
    assert probes["tool-call-parser"]["verdict"] == "fail"
    assert "model.harmony_vocabulary" in probes["tool-call-parser"]["hint"]
