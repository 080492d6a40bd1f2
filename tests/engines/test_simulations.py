"""What the mocker takes over from an engine's configuration, and what is reported instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from penstock.engines.engine import Effective, Mode, NoSimulation, Simulation, Switch, Unset, Value
from penstock.engines.mocker import simulation
from penstock.engines.parsers import NotParsed, Rejected
from penstock.engines.table import simulate
from penstock.manifests.deployment import Engine, EngineConfig, KnownConfig, NoConfig, UnknownConfig
from penstock.manifests.flags import without_flags

from .launches import (
    MODULES,
    checked,
    component,
    launch,
    line_about,
    mocker_accepts,
    simulated,
    value_of,
)

TRTLLM, VLLM, SGLANG, MOCKER = Engine.TRTLLM, Engine.VLLM, Engine.SGLANG, Engine.MOCKER
EVENTS = '{"publisher":"zmq","endpoint":"tcp://*:20080","enable_kv_cache_events":true}'


def file(values: Mapping[str, Any]) -> KnownConfig:
    return KnownConfig(values=values, path="/c/e.yaml", place="ConfigMap/c/e.yaml")


def check(
    mocker: Simulation,
    arguments: str = "",
    *,
    without: str = "",
    simulates: tuple[str, ...] = (),
    reports: Mapping[str, str] | None = None,
) -> None:
    """``arguments`` and no flag ``without`` are in the command; ``reports``: the beginning of a
    line about what is not simulated → its end."""
    command = f" {' '.join(mocker.arguments)} "
    flags = re.split(" (?=--)", arguments) if arguments else ()
    missing = [flag for flag in flags if f" {flag} " not in command]
    assert missing == []
    assert not without or without not in mocker.arguments
    assert set(simulates) <= set(mocker.simulated)
    for beginning, end in (reports or {}).items():
        assert line_about(mocker.not_simulated, beginning).endswith(end)


@pytest.mark.parametrize(
    ("flags", "values", "expected"),
    [
        (
            "--max-batch-size 8 --max-num-tokens 512",
            {"max_batch_size": 64},
            {
                "arguments": "--max-num-seqs 64 --max-num-batched-tokens 512",
                "simulates": (
                    "concurrent sequences 64 (max_batch_size)",
                    "tokens per batch 512 (--max-num-tokens)",
                ),
            },
        ),
        ("--trtllm.max_batch_size 16", {"max_batch_size": 64}, {"arguments": "--max-num-seqs 16"}),
        (
            "--trtllm.kv_cache_config.max_tokens 6400",
            {"kv_cache_config": {"tokens_per_block": 64, "dtype": "fp8"}},
            {
                "arguments": "--block-size 32 --num-gpu-blocks-override 200",
                "without": "--kv-cache-dtype",
                "reports": {"the override replaces the entire kv_cache_config": ""},
            },
        ),
        (
            "--trtllm.speculative_config.max_draft_len 5 --dyn-reasoning-parser gpt_oss",
            {"speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3}},
            {
                "reports": {
                    "speculative decoding (Eagle3, 5 tokens)": "",
                    "reasoning and tool parsers (gpt_oss)": "",
                }
            },
        ),
        (
            "--kv-block-size 128",
            {"kv_cache_config": {"max_tokens": 100_000}},
            {
                "arguments": "--block-size 32 --num-gpu-blocks-override 3125",
                "reports": {"--kv-block-size 128": ""},
            },
        ),
        (
            "",
            {},
            {
                "without": "--endpoint",
                "reports": {
                    "KV capacity": "measures it on the GPU at start; the mocker uses 16384",
                    "KV events: the engine publishes none": "",
                },
            },
        ),
        (
            "--tensor-parallel-size 4",
            {"enable_attention_dp": True},
            {"arguments": "--data-parallel-size 4"},
        ),
        ("--tensor-parallel-size 4", {}, {"without": "--data-parallel-size"}),
        (
            "",
            {"kv_cache_config": {"enable_block_reuse": False}},
            {"arguments": "--no-enable-prefix-caching"},
        ),
        (
            "",
            {"max_seq_len": 4096, "max_num_tokens": 4096},
            {"arguments": "--no-enable-chunked-prefill"},
        ),
        (
            "",
            {"max_seq_len": 8192, "max_num_tokens": 4096},
            {
                "without": "--no-enable-chunked-prefill",
                "reports": {
                    "chunked prefill off": "4096 tokens (the engine rejects such a prompt)"
                },
            },
        ),
        (
            "--publish-kv-events --disaggregation-mode prefill --endpoint dyn://a.b.c",
            {},
            {
                "arguments": "--disaggregation-mode prefill --endpoint dyn://a.b.c",
                "simulates": ("KV events published (--publish-kv-events)",),
            },
        ),
    ],
)
def test_tensorrt_llms_settings_are_simulated_or_reported(
    flags: str, values: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    check(simulated(TRTLLM, flags, file(values)), **expected)


def test_a_file_in_the_image_is_reported_as_unread() -> None:
    unread = UnknownConfig(path="/opt/e.yaml", reason="it is in the image")
    mocker = simulated(TRTLLM, "--max-batch-size 8 --extra-engine-args /opt/e.yaml", unread)
    reports = {"/opt/e.yaml: it is in the image": ""}
    check(mocker, "--max-num-seqs 8", reports=reports)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--model a/b --block-size 64 --max-num-seqs 32 --max-num-batched-tokens 4096"
            " --max-model-len 10k --num-gpu-blocks-override 900 --data-parallel-size 2"
            f" --kv-cache-dtype fp8 --kv-events-config '{EVENTS}'",
            {
                "arguments": "--engine-type vllm --block-size 64 --max-num-seqs 32"
                " --max-num-batched-tokens 4096 --max-model-len 10000"
                " --num-gpu-blocks-override 900 --data-parallel-size 2 --kv-cache-dtype fp8",
                "simulates": ("KV events published (--kv-events-config)",),
            },
        ),
        (
            "--model a/b --data-parallel-size 8 --data-parallel-rank 3"
            ' --speculative-config \'{"method":"mtp","num_speculative_tokens":2}\'',
            {
                "without": "--data-parallel-size",  # each process has one rank
                "reports": {
                    "speculative decoding (mtp, 2 tokens)": "",
                    "block size": "the mocker uses 16",
                    "KV capacity in blocks": "the mocker uses 16384",
                    "concurrent sequences, tokens per batch": "by GPU; the mocker uses 256, 8192",
                    "context length": "the mocker uses no limit",
                },
            },
        ),
    ],
)
def test_vllms_settings_are_simulated_or_reported(flags: str, expected: Mapping[str, Any]) -> None:
    check(simulated(VLLM, flags), **expected)


@pytest.mark.parametrize(
    ("flags", "values", "expected"),
    [
        (
            "--model-path a/b --page-size 64 --max-total-tokens 640000 --context-length 4096"
            " --dp-size 2 --disaggregation-mode decode --tp 8 --unknown x",
            {},
            {
                "arguments": "--disaggregation-mode decode --block-size 64"
                " --num-gpu-blocks-override 10000 --max-model-len 4096 --data-parallel-size 2",
                "reports": {"SGLang's flags are not checked": ""},
            },
        ),
        (
            "--config /c.yaml --page-size 32",
            {
                "model-path": "a/b",
                "page-size": 64,
                "context-length": 4096,
                "disable-radix-cache": False,
                "kv-events-config": {"publisher": "zmq"},
            },
            {
                "arguments": "--block-size 32 --max-model-len 4096",
                "without": "--no-enable-prefix-caching",
                "simulates": ("KV events published (--kv-events-config)",),
            },
        ),
        (
            "--model-path a/b --page-size 48 --chunked-prefill-size -1 --disable-radix-cache"
            " --speculative-algorithm EAGLE3",
            {},
            {
                "arguments": "--block-size 32 --no-enable-prefix-caching",
                "without": "--no-enable-chunked-prefill",
                "reports": {
                    "block size 48": "it uses 32",
                    "chunked prefill off": "cannot disable it for SGLang",
                    "speculative decoding (EAGLE3)": "",
                },
            },
        ),
    ],
)
def test_sglangs_settings_are_simulated_or_reported(
    flags: str, values: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    check(simulated(SGLANG, flags, file(values)), **expected)


@pytest.mark.parametrize(
    ("engine", "flags", "served"),
    [
        (TRTLLM, "--model a/b --served-model-name n", ("n",)),
        (VLLM, "--model a/b --served-model-name n alias", ("n", "alias")),
        (SGLANG, "--model-path a/b --served-model-name n", ("n",)),
        (MOCKER, "--model-path a/b --model-name=n", ("n",)),
    ],
)
def test_the_mocker_serves_the_model_under_the_same_names(
    engine: Engine, flags: str, served: tuple[str, ...]
) -> None:
    mocker = simulated(engine, flags)
    assert (mocker.model, mocker.served_names) == ("a/b", served)


@pytest.mark.parametrize(
    ("engine", "flags", "config", "reason"),
    [
        (TRTLLM, "--disaggregation-mode encode", NoConfig(), "the mocker has no encode worker"),
        (VLLM, "--embedding-worker --runner pooling", NoConfig(), "no --embedding-worker worker"),
        (SGLANG, "--model-path a --embedding-worker", NoConfig(), "no --embedding-worker worker"),
        (SGLANG, "--model-path", NoConfig(), "its model is unknown: no --model-path"),
        (
            *(SGLANG, "--config /c.yaml"),
            UnknownConfig(path="/c.yaml", reason="it is in the image"),
            "/c.yaml: it is in the image",
        ),
    ],
)
def test_some_workers_have_no_mocker(
    engine: Engine, flags: str, config: EngineConfig, reason: str
) -> None:
    line = f"{MODULES[engine]} {flags}"
    parsed = checked(line)
    assert not isinstance(parsed, Rejected)
    replaced = simulate(component(launch(line), engine, config), launch(line), parsed)
    assert isinstance(replaced, NoSimulation)
    assert reason in replaced.reason


@pytest.mark.parametrize("engine", [TRTLLM, VLLM, MOCKER, Engine.LLAMACPP])
def test_a_launch_that_was_not_parsed_has_no_mocker(engine: Engine) -> None:
    started = launch(engine.module)
    unparsed = NotParsed(component="worker", reason="it reads /x")
    replaced = simulate(component(started, engine, NoConfig()), started, unparsed)
    assert isinstance(replaced, NoSimulation)
    assert "it reads /x" in replaced.reason


def test_the_mockers_own_arguments_are_kept_except_model_and_planes() -> None:
    flags = "--model-path a/b --speedup-ratio 10 --discovery-backend kubernetes"
    assert simulated(MOCKER, flags).arguments == ("--speedup-ratio", "10")
    both_spellings = ("--a", "1", "--b=2", "--c", "--a=3", "--d")
    assert without_flags(both_spellings, "--a") == ("--b=2", "--c", "--d")


UNSET = Unset("the engine chooses it")
PLAIN = Effective(
    backend="trtllm",
    mode=Mode.AGG,
    model="a/b",
    served_names=(),
    block_size=Value(32, "flag"),
    max_sequences=UNSET,
    max_batch_tokens=UNSET,
    max_length=UNSET,
    kv_blocks=UNSET,
    ranks=Value(1, "flag"),
    prefix_caching=Switch(True, "flag"),
    chunked_prefill=Switch(True, "flag"),
    kv_events=Switch(True, "flag"),
)


def mocker_of(**changes: Any) -> Simulation:
    mocker = simulation(replace(PLAIN, **changes))
    assert isinstance(mocker, Simulation)
    mocker_accepts(mocker)
    return mocker


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("size", [1, 2, 3, 48, 256])
def test_every_block_size_gives_a_command_that_the_mocker_accepts(backend: str, size: int) -> None:
    mocker = mocker_of(backend=backend, block_size=Value(size, "flag"))
    adapted = value_of(mocker, "--block-size") != str(size)
    assert adapted == any(line.startswith(f"block size {size}:") for line in mocker.not_simulated)


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("mode", list(Mode))
def test_every_disabled_switch_gives_a_command_that_the_mocker_accepts(
    backend: str, mode: Mode
) -> None:
    off, short = Switch(False, "flag"), Value(1000, "flag")
    switches = {"prefix_caching": off, "chunked_prefill": off, "kv_events": off}
    mocker = mocker_of(backend=backend, mode=mode, max_length=short, kv_dtype="nvfp4", **switches)
    assert not [line for line in mocker.not_simulated if line.startswith("KV events")]


def test_the_kv_cache_fits_one_request_of_full_length() -> None:
    blocks = Value(4, "flag")
    unknown_capacity = mocker_of(max_length=Value(1_000_000, "flag"))
    check(unknown_capacity, "--num-gpu-blocks-override 31250 --max-model-len 1000000")
    reduced = mocker_of(kv_blocks=blocks, max_length=Value(1000, "flag"))
    reports = {"context length 1000": "the mocker uses 128"}
    check(reduced, "--max-model-len 128", reports=reports)
    reports = {"concurrent sequences, tokens per batch, context length:": "uses 256, 8192, 128"}
    check(mocker_of(kv_blocks=blocks), "--max-model-len 128", reports=reports)
