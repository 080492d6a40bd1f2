"""vLLM: its own command-line habits, Dynamo's rules on top, and what the mocker takes over."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.engine import NoSimulation
from penstock.engines.parsers import Parsed
from penstock.engines.table import simulate
from penstock.manifests.deployment import Engine, NoConfig

from .launches import (
    checked,
    component,
    launch,
    line_about,
    rejection,
    settings,
    simulated,
    value_of,
)

NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
EVENTS = '{"publisher":"zmq","endpoint":"tcp://*:20080","enable_kv_cache_events":true}'


def engine(line: str, **launch_parts: object) -> dict[str, Any]:
    found: Any = settings(f"dynamo.vllm {line}", **launch_parts)["engine_args"]
    return dict(found)


def test_prefill_without_a_kv_transfer_config_is_refused() -> None:
    assert "--kv-transfer-config" in rejection("dynamo.vllm --disaggregation-mode prefill")
    accepted = checked(f"dynamo.vllm --disaggregation-mode prefill --kv-transfer-config '{NIXL}'")
    assert isinstance(accepted, Parsed)


def test_a_connector_is_refused_with_what_replaces_it() -> None:
    assert "--kv-transfer-config" in rejection("dynamo.vllm --connector nixl")
    assert "--connector" in rejection("dynamo.vllm", env={"DYN_CONNECTOR": "none"})


def test_underscores_count_as_dashes() -> None:
    assert engine("--max_model_len 4096 --served_model_name a_b")["max_model_len"] == 4096


def test_dotted_flags_are_one_json_value() -> None:
    found = engine(
        "--compilation-config.mode 3 --kv-events-config.enable_kv_cache_events true"
        " --kv-events-config.publisher zmq --compilation-config.cudagraph_capture_sizes+ 1,2"
    )
    assert found["compilation_config"]["mode"] == 3
    assert found["kv_events_config"]["enable_kv_cache_events"] is True


@pytest.mark.parametrize("flag", ["-O3", "-O=3", "-O 3", "--optimization-level 3"])
def test_the_optimization_level_has_short_spellings(flag: str) -> None:
    assert engine(flag)["optimization_level"] == "3"


def test_booleans_have_a_negative_form() -> None:
    assert engine("--no-enable-prefix-caching")["enable_prefix_caching"] is False
    assert engine("--enable-prefix-caching")["enable_prefix_caching"] is True


@pytest.mark.parametrize(
    ("text", "value"), [("4096", 4096), ("10k", 10_000), ("8K", 8192), ("auto", -1)]
)
def test_lengths_may_have_suffixes(text: str, value: int) -> None:
    assert engine(f"--max-model-len {text}")["max_model_len"] == value


def test_the_command_line_overrides_the_flags_of_a_yaml_file() -> None:
    yaml = "block_size: 32\nmax-num-seqs: 7\nenforce-eager: true\nenable-prefix-caching: false\n"
    found = engine("--config /c.yaml --block-size 64", files={"/c.yaml": yaml})
    assert (found["block_size"], found["max_num_seqs"]) == (64, 7)
    assert found["enforce_eager"] is True
    assert found["enable_prefix_caching"] is False


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("--block-size x", "invalid int value: 'x'"),
        ("--dtype fp7", "invalid choice: 'fp7'"),
        ("--kv-transfer-config '{broken'", "'{broken' is not JSON"),
        ("--kv-transfer-config '{\"kv_conector\": 1}'", "unknown key kv_conector"),
        ('--kv-transfer-config \'{"kv_connector": "X"}\'', "needs a kv_role"),
        ('--kv-events-config \'{"publisher": "nats"}\'', "publisher: 'nats' is none of"),
        ("--speculative-config nonsense", "is not JSON"),
        ("--max-model-len 1.5K", "Decimals are not allowed"),
        ("--config /c.json", "must be of a yaml/yml type"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(flags: str, part: str) -> None:
    assert part in rejection(f"dynamo.vllm {flags}")


def test_vllms_settings_are_simulated() -> None:
    found = simulated(
        Engine.VLLM,
        "--model a/b --served-model-name n alias --block-size 64 --max-num-seqs 32"
        " --max-num-batched-tokens 4096 --max-model-len 10k --num-gpu-blocks-override 900"
        f" --data-parallel-size 2 --kv-cache-dtype fp8 --kv-events-config '{EVENTS}'",
    )
    expected = {
        "--engine-type": "vllm",
        "--block-size": "64",
        "--max-num-seqs": "32",
        "--max-num-batched-tokens": "4096",
        "--max-model-len": "10000",
        "--num-gpu-blocks-override": "900",
        "--data-parallel-size": "2",
        "--kv-cache-dtype": "fp8",
    }
    assert {flag: value_of(found, flag) for flag in expected} == expected
    assert (found.model, found.served_names) == ("a/b", ("n", "alias"))
    assert "KV events published (--kv-events-config)" in found.simulated
    assert found.not_simulated == ()


def test_what_vllm_decides_at_startup_is_reported() -> None:
    found = simulated(Engine.VLLM, "--model a/b")
    assert line_about(found.not_simulated, "block size").endswith("the mocker uses 16")
    assert line_about(found.not_simulated, "KV capacity in blocks").endswith(
        "the mocker uses 16384"
    )
    together = line_about(found.not_simulated, "concurrent sequences, tokens per batch")
    assert together.endswith("by GPU; the mocker uses 256, 8192")
    assert line_about(found.not_simulated, "context length").endswith("the mocker uses no limit")


def test_with_an_external_load_balancer_each_process_has_one_rank() -> None:
    found = simulated(Engine.VLLM, "--data-parallel-size 8 --data-parallel-rank 3")
    assert value_of(found, "--data-parallel-size") is None


def test_speculation_is_reported_as_not_simulated() -> None:
    found = simulated(
        Engine.VLLM, '--speculative-config \'{"method":"mtp","num_speculative_tokens":2}\''
    )
    assert "mtp, 2 tokens" in line_about(found.not_simulated, "speculative decoding")


def test_an_embedding_worker_has_no_mocker() -> None:
    started = launch("dynamo.vllm --embedding-worker --runner pooling")
    parsed = checked("dynamo.vllm --embedding-worker --runner pooling")
    assert isinstance(parsed, Parsed)
    found = simulate(component(started, Engine.VLLM, NoConfig()), started, parsed)
    assert isinstance(found, NoSimulation)
