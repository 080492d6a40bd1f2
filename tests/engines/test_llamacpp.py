"""llama.cpp: the worker's own parser, its effective settings, and the mocker in its place."""

from __future__ import annotations

import pytest

from penstock.engines import llamacpp
from penstock.engines.engine import Effective, Mode, NoSimulation, Unset, Value
from penstock.engines.parsers import Parsed, Rejected
from penstock.engines.table import simulate
from penstock.llamacpp.config import invalid_options
from penstock.local.prepare import launch_error
from penstock.manifests.deployment import Engine, NoConfig
from penstock.manifests.source import graph_source

from .launches import checked, checked_all, component, launch, mocker_accepts, rejection

FILE = "/etc/penstock/engine.yaml"
LINE = f"penstock.llamacpp --model m.gguf --config {FILE}"


def effective(text: str = "", flags: str = "") -> Effective:
    started = launch(f"{LINE} {flags}", files={FILE: text})
    (parsed,) = checked_all([("worker", started)])
    assert isinstance(parsed, Parsed), parsed
    read = llamacpp.effective(component(started, Engine.LLAMACPP, NoConfig()), started, parsed)
    assert isinstance(read, Effective)
    return read


def test_the_configuration_file_becomes_effective_settings() -> None:
    read = effective("n_parallel: 8\nn_ctx_seq: 2048\nblock_size: 32\nn_batch: 512\n")
    assert (read.model, read.mode) == ("m.gguf", Mode.AGG)
    assert (read.max_sequences, read.max_length) == (
        Value(8, "n_parallel"),
        Value(2048, "n_ctx_seq"),
    )
    assert (read.block_size, read.max_batch_tokens) == (
        Value(32, "block_size"),
        Value(512, "n_batch"),
    )
    assert read.kv_blocks == Value(8 * 2048 // 32, "n_parallel × n_ctx_seq")


def test_what_is_unset_is_llama_cpps_own_choice() -> None:
    unset = effective()
    assert (unset.max_sequences.value, unset.block_size.value) == (4, 16)
    assert unset.max_batch_tokens == Value(256, "n_batch")
    for value in (unset.max_length, unset.kv_blocks):
        assert isinstance(value, Unset)


@pytest.mark.parametrize(
    ("mode", "expected", "publishes"),
    [("agg", Mode.AGG, True), ("prefill", Mode.PREFILL, True), ("decode", Mode.DECODE, False)],
)
def test_prompts_are_routed_by_the_events_of_the_workers_that_compute_them(
    mode: str, expected: Mode, publishes: bool
) -> None:
    read = effective(flags=f"--disaggregation-mode {mode} --served-model-name n")
    assert read.mode is expected
    assert read.kv_events.on is publishes
    assert read.served_names == ("n",)


def test_the_mocker_accepts_what_replaces_it() -> None:
    started = launch(f"{LINE} --served-model-name n", files={FILE: "n_ctx_seq: 1024\n"})
    (parsed,) = checked_all([("worker", started)])
    assert isinstance(parsed, Parsed)
    mocker = simulate(component(started, Engine.LLAMACPP, NoConfig()), started, parsed)
    assert not isinstance(mocker, NoSimulation), mocker
    mocker_accepts(mocker)
    assert mocker.served_names == ("n",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "n_paralel: 4\n",
            "n_paralel: is not an option of penstock's llama.cpp worker. Did you mean "
            "`n_parallel`?",
        ),
        ("n_parallel: 0\n", "n_parallel: must be at least 1, got 0"),
        ('n_parallel: "4"\n', 'n_parallel: must be an integer, got the string "4"'),
        ("sampling: {temp: -1}\n", "sampling.temp: must be at least 0, got -1"),
        ("sampling: {top_p: 1.5}\n", "sampling.top_p: must be at most 1, got 1.5"),
        ("n_ctx_seq: 16\n", "n_ctx_seq: must be more than block_size (16), got 16"),
        ("sampling: {top_kk: 1}\n", "sampling.top_kk: is not an option"),
        ("a: 1\nb: 2\n", "It has block_size, n_batch"),
    ],
)
def test_a_wrong_option_is_rejected_by_name(text: str, message: str) -> None:
    assert message in rejection(LINE, files={FILE: text})


@pytest.mark.parametrize(
    ("value", "message", "fix"),
    [
        ("8k", 'must be an integer, got the string "8k"', "Write 8192 (8 × 1024) or 8000."),
        ("500ms", 'must be an integer, got the string "500ms"', "Write the number alone"),
        (None, "must be an integer, got nothing (null)", "Give it a value, or remove the key."),
        ("512", 'must be an integer, got the string "512"', "Write it without quotes."),
        (0, "must be at least 1, got 0", "Set n_parallel to at least 1."),
    ],
)
def test_a_wrong_value_has_the_message_and_fix_of_the_loader(
    value: object, message: str, fix: str
) -> None:
    (wrong,) = invalid_options({"n_parallel": value})
    assert (wrong.path, wrong.message) == (("n_parallel",), message)
    assert wrong.fix.startswith(fix)


GRAPH = """\
model: {id: acme/model}
engine:
  kind: llamacpp
  config:
    n_parallel: 4
    n_treads: 2
worker: {}
"""


def test_up_names_the_line_of_a_wrong_option_and_the_nearest_one() -> None:
    source = graph_source(GRAPH, "graph.yaml")
    parts = [(c.name, launch) for c in source.deployment.components for launch in c.launches]
    refused = [r for r in checked_all(parts) if isinstance(r, Rejected)]
    (problem,) = launch_error(refused, "graph.yaml", source.loaded).problems
    assert (problem.line, problem.place) == (6, "engine.config.n_treads")
    assert "Did you mean `n_threads`?" in problem.message


def test_a_wrong_flag_is_rejected() -> None:
    wrong = rejection(f"{LINE} --disaggregation-mode both", files={FILE: ""})
    assert "--disaggregation-mode" in wrong
    assert isinstance(checked(LINE, files={FILE: ""}), Parsed)
