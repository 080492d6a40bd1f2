"""From an effective configuration to a mocker that starts, for values the mocker itself refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.engines.engine import Effective, Mode, Switch, Unset, Value
from penstock.engines.mocker import simulation

from .launches import line_about, mocker_accepts, value_of

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


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("size", [1, 2, 3, 48, 256])
def test_every_block_size_gives_a_command_that_the_mocker_accepts(backend: str, size: int) -> None:
    found = simulation(replace(PLAIN, backend=backend, block_size=Value(size, "flag")))
    mocker_accepts(found)
    adapted = value_of(found, "--block-size") != str(size)
    assert adapted == any(line.startswith(f"block size {size}:") for line in found.not_simulated)


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("mode", list(Mode))
def test_every_disabled_switch_gives_a_command_that_the_mocker_accepts(
    backend: str, mode: Mode
) -> None:
    off = Switch(False, "flag")
    short = Value(1000, "flag")
    mocker_accepts(
        simulation(
            replace(
                PLAIN,
                backend=backend,
                mode=mode,
                max_length=short,
                prefix_caching=off,
                chunked_prefill=off,
                kv_dtype="nvfp4",
            )
        )
    )


def test_decode_workers_have_no_line_about_kv_events() -> None:
    found = simulation(replace(PLAIN, mode=Mode.DECODE, kv_events=Switch(False, "no flag")))
    assert not [
        line for line in found.simulated + found.not_simulated if line.startswith("KV events")
    ]


def test_an_unknown_kv_capacity_fits_one_request_of_full_length() -> None:
    found = simulation(replace(PLAIN, max_length=Value(1_000_000, "flag")))
    assert value_of(found, "--num-gpu-blocks-override") == "31250"
    assert value_of(found, "--max-model-len") == "1000000"


def test_a_context_longer_than_the_kv_cache_is_reduced_and_reported() -> None:
    small = replace(PLAIN, kv_blocks=Value(4, "flag"), max_length=Value(1000, "flag"))
    found = simulation(small)
    assert value_of(found, "--max-model-len") == "128"
    assert line_about(found.not_simulated, "context length 1000").endswith("the mocker uses 128")


def test_an_unset_context_is_the_capacity_of_a_configured_kv_cache() -> None:
    found = simulation(replace(PLAIN, kv_blocks=Value(4, "flag")))
    assert value_of(found, "--max-model-len") == "128"
    assert found.not_simulated[-1].startswith(
        "concurrent sequences, tokens per batch, context length:"
    )
    assert found.not_simulated[-1].endswith("the mocker uses 256, 8192, 128")
