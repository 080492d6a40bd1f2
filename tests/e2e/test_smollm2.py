"""Real text from vLLM on a CPU, KV over NIXL, token by token against transformers.

The graph starts once. CI compares six prompts with recorded tokens, which
benchmarks/smollm2_exact.py computed; `make nightly` computes those of 64, and runs every probe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.environments.packaged_models import SMOLLM2, packaged_model
from smollm2_exact import CHOSEN, GRAPH, RECORDED, START_S, decidable, prompts
from tests.e2e.chats import completed, text_of, verified
from tests.support.local_graphs import running_graph
from token_requests import Prompt, ask_each, differences, every, reference

# Probes that depend on the model's shape. test_cpu_engine.py runs the others with a smaller model.
PROBES = ("disaggregation", "kv-transfer")

# Its start takes a minute of CPU time. In CI, test_gguf compares tokens of llama.cpp.
pytestmark = [pytest.mark.nightly, pytest.mark.needs("smollm2"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphProcess]:
    folder = tmp_path_factory.mktemp("smollm2")
    path = copy_graph(GRAPH, folder)
    with running_graph(path, folder, "--port", "0", env={}, start_s=START_S) as process:
        yield process


def test_it_knows_the_capital_of_france_and_ends_its_answer(graph: GraphProcess) -> None:
    greedy = completed(graph, "What is the capital of France?", temperature=0)
    assert text_of(greedy) == "The capital of France is Paris."
    assert greedy["choices"][0]["finish_reason"] == "stop"


def test_a_default_request_gets_a_short_answer_in_english(graph: GraphProcess) -> None:
    """Without temperature and max_tokens: the model's own sampling settings apply."""
    sampled = completed(graph, "What is the capital of France?", seed=1)
    assert sampled["choices"][0]["finish_reason"] == "stop"
    assert "Paris" in text_of(sampled)


def _wrong(
    graph: GraphProcess, sent: Sequence[Prompt], expected: Sequence[dict[str, Any]]
) -> list[str]:
    """One line for each wrong response, streamed and not, eight at a time."""
    clear = set(decidable(expected))
    assert len(clear) >= len(sent) * 0.9, "too many prompts cannot be compared"
    assert len({tuple(one["tokens"]) for one in expected}) > len(sent) * 0.9
    asked = [(at, stream) for at, stream in every(sent) if at in clear]
    url = str(graph.state()["endpoint"])
    return differences(ask_each(url, SMOLLM2, sent, asked), sent, expected)


def test_tokens_equal_the_recorded_ones_of_transformers(graph: GraphProcess) -> None:
    recorded = json.loads(RECORDED.read_text())
    sent = [Prompt(tuple(one["ids"]), one["text"]) for one in recorded]
    assert len(sent) == len(CHOSEN)
    assert _wrong(graph, sent, recorded) == []


@pytest.mark.nightly
def test_tokens_of_64_prompts_equal_those_of_transformers(graph: GraphProcess) -> None:
    folder = packaged_model(SMOLLM2, "safetensors")
    assert folder is not None
    expected = reference(folder, prompts())
    assert len(prompts()) == 64
    assert _wrong(graph, prompts(), expected) == []


def test_the_kv_cache_that_is_transferred_has_the_models_size(graph: GraphProcess) -> None:
    verdicts = verified(graph, *PROBES)
    assert [name for name, text in verdicts.items() if not text.startswith("pass")] == []
    assert "as the model's shape predicts" in verdicts["kv-transfer"]


@pytest.mark.nightly
def test_every_probe_passes_or_has_nothing_to_test(graph: GraphProcess) -> None:
    verdicts = verified(graph)
    others = {name: text for name, text in verdicts.items() if not text.startswith("pass")}
    assert sorted(others) == ["reasoning-parser", "tool-call-parser"]
    assert all("the graph configures no" in text for text in others.values())
