"""The cost of drafting in speculative decoding."""

from __future__ import annotations

import itertools
import json
import operator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import SimulationError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints, understand
from penstock.simulate.acceptance import (
    MOST_TOKENS,
    PUBLISHED,
    Acceptance,
)
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Job, Replays, as_trace
from penstock.simulate.replayable import replayable
from penstock.simulate.timing import LAYER_TIME, Drafting, cost_note, draft_cost, drafting_of
from penstock.workload import Request

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
EAGLE3 = "gpt-oss-120b-b200-latency-eagle3"
NVIDIA = Drafting(method="eagle3", model="nvidia/gpt-oss-120b-Eagle3-v3", tokens=3)
PLAIN = "gpt-oss-120b-b200-latency"
NGRAM = ("speculation.method=ngram", "speculation.draft_tokens=3")
REJECTED = Acceptance((0.0, 0.0, 0.0))  # each step yields one token, so ITL is the step time


def drafting(name: str, *sets: str) -> Drafting | None:
    serving = understand(open_source(GRAPHS / f"{name}.yaml", sets), Hints())
    return drafting_of(serving.workers[0])


def of(name: str, *sets: str, acceptance: Acceptance | None = None) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", sets), Hints(), acceptance)


def itl_ms(*deployments: Replayable) -> list[float]:
    """ITL in ms of one request alone."""
    trace = as_trace([Request(input_tokens=1000, output_tokens=100, blocks=(), at_ms=0.0)])
    jobs = [Job(replayable=d, trace=trace, concurrency=None, sample_ms=500) for d in deployments]
    with Replays(Cache(None, ""), processes=1) as replays:
        requests = [result["requests"] for result in replays.run(jobs)]
    return [
        (request["last_token_ms"][0] - request["first_token_ms"][0]) / 99 for request in requests
    ]


def test_a_graph_states_method_draft_model_and_tokens() -> None:
    assert drafting(EAGLE3) == NVIDIA
    assert drafting(PLAIN, *NGRAM) == Drafting(method="ngram", model="", tokens=3)
    assert drafting(PLAIN) is None


def test_sglang_names_its_settings_differently() -> None:
    model = "lmsys/EAGLE3-gpt-oss-120b-bf16"
    values = {"method": "eagle3", "draft_model": model, "draft_tokens": 2}
    sets = [f"speculation.{key}={value}" for key, value in values.items()]
    eagle3 = drafting("gpt-oss-120b-h200-sglang", *sets)
    assert eagle3 is not None
    assert eagle3.method == "eagle3"
    assert eagle3.model == model
    assert eagle3.tokens == 2


def test_the_cost_of_eagle3_has_the_shape_of_the_draft_model() -> None:
    cost = draft_cost(NVIDIA, 2)
    assert cost is not None
    assert cost["kind"] == "eagle3"
    assert cost["params"] == {"num_speculative_tokens": 2}
    assert cost["draft_config"]["intermediate_size"] == 17280
    note = cost_note(cost)
    assert note is not None
    assert "1 layer" in note
    assert "vocabulary of 201,088" in note


def test_the_shape_is_read_from_a_folder_with_the_draft_model(tmp_path: Path) -> None:
    layer = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    layer |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}
    config = {"draft_vocab_size": 500, "transformer_layer_config": layer}
    (tmp_path / "config.json").write_text(json.dumps(config))
    cost = draft_cost(replace(NVIDIA, model=str(tmp_path)), 3)
    assert cost is not None
    assert cost["draft_config"] == {**layer, "draft_vocab_size": 500}


def test_a_broken_configuration_of_the_draft_model_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{")
    with pytest.raises(SimulationError) as caught:
        draft_cost(replace(NVIDIA, model=str(tmp_path)), 3)
    (problem,) = caught.value.problems
    assert problem.place == str(file)
    assert "the shape of the draft model cannot be read" in problem.message
    assert problem.fix == "Download the file again."


def test_ngram_has_no_draft_model_and_nothing_to_assume() -> None:
    cost = draft_cost(Drafting(method="ngram", model="", tokens=3), 3)
    assert cost == {"kind": "ngram", "params": {"num_speculative_tokens": 3}}
    assert cost_note(cost) is None


@pytest.mark.parametrize("unknown", [replace(NVIDIA, model="a/b"), replace(NVIDIA, method="mtp")])
def test_an_unknown_draft_model_takes_the_time_of_layers_of_the_model(unknown: Drafting) -> None:
    assert draft_cost(unknown, 3) is None
    assert cost_note(None) == LAYER_TIME


@pytest.mark.needs("sim")
def test_a_step_takes_longer_with_each_draft_token_and_with_a_draft_model() -> None:
    plain, ngram, single, three = itl_ms(
        of(PLAIN),
        of(PLAIN, *NGRAM, acceptance=REJECTED),
        of(EAGLE3, acceptance=Acceptance((0.0,))),
        of(EAGLE3, acceptance=REJECTED),
    )
    assert plain < single < three
    # Both verify four tokens per sequence. Three passes of the draft model take some 0.1 ms each:
    # it reads 1.6 GB of weights on 8 GPUs of 8 TB/s, and waits for its kernels and all-reduces.
    assert 0.1 < three - ngram < 0.6


@pytest.mark.needs("sim")
def test_a_draft_model_on_one_gpu_takes_longer_than_layers_of_the_model() -> None:
    layers = replace(REJECTED, prices_draft=False)
    deployments = (
        of(EAGLE3, "worker.gpus=1", acceptance=acceptance)
        for acceptance in (REJECTED, layers, REJECTED)
    )
    priced, unpriced, again = itl_ms(*deployments)
    assert priced > 1.05 * unpriced
    assert again == priced, "the cost of one job must not affect the next"


DOCS = Path(__file__).parents[2] / "docs" / "simulate.md"


def length_of(rates: tuple[float, ...]) -> float:
    """Mean number of tokens of a step."""
    return 1 + sum(itertools.accumulate(rates, operator.mul))


@pytest.mark.parametrize("name", PUBLISHED)
def test_rates_give_the_published_length(name: str) -> None:
    published = PUBLISHED[name]
    assert len(published.rates) == MOST_TOKENS
    for tokens, length in published.lengths.items():
        rates = published.rates[:tokens] + published.rates[-1:] * (tokens - MOST_TOKENS)
        assert length_of(rates) == pytest.approx(length, abs=0.01)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_documentation_shows_rates_and_source(name: str) -> None:
    published = PUBLISHED[name]
    rows = [line for line in DOCS.read_text("utf-8").splitlines() if f"`{name}`" in line]
    (row,) = [line for line in rows if published.source in line]
    assert ", ".join(f"{rate:g}" for rate in published.rates[:3]) in row
    assert published.text in row
    assert f"{length_of(published.rates[:3]):.2f}" in row
