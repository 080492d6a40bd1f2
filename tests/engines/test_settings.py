"""What a worker is set to: sources in the order in which its engine merges them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.settings import Settings, read_settings
from penstock.manifests.deployment import Engine, KnownConfig, Launch, NoConfig
from tests.engines.launches import component

TRTLLM, VLLM = Engine.TRTLLM, Engine.VLLM
VARIABLE = {"DYN_TRTLLM_MAX_NUM_TOKENS": "1"}
FLAG = ("--max-num-tokens", "2")
FP8 = {"kv_cache_config": {"dtype": "fp8"}}
OVERRIDE = ("--override-engine-args", '{"kv_cache_config": {"tokens_per_block": 64}}')


def settings(
    engine: Engine,
    *arguments: str,
    file: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
) -> Settings:
    launch = Launch(argv=("python3", "-m", f"dynamo.{engine}", *arguments), env=env or {})
    config = KnownConfig(values=file, path="/e.yaml", place="ConfigMap/e/e.yaml") if file else None
    return read_settings(component(launch, engine, config or NoConfig()), launch)


@pytest.mark.parametrize(
    ("read", "name", "value", "source"),
    [
        (settings(TRTLLM, env=VARIABLE), "max_batch_tokens", 1, "env"),
        (settings(TRTLLM, *FLAG, env=VARIABLE), "max_batch_tokens", 2, "args"),
        (
            settings(TRTLLM, *FLAG, file={"max_num_tokens": 3}, env=VARIABLE),
            *("max_batch_tokens", 3, "config"),
        ),
        # The KV cache of the file merges over the command line's, and the override replaces it.
        (
            settings(TRTLLM, "--free-gpu-memory-fraction", "0.7", file=FP8),
            *("memory_fraction", 0.7, "args"),
        ),
        (
            settings(TRTLLM, "--free-gpu-memory-fraction", "0.7", file=FP8),
            "kv_dtype",
            "fp8",
            "config",
        ),
        (settings(TRTLLM, *OVERRIDE, file=FP8), "block_size", 64, "args"),
        (settings(TRTLLM, *OVERRIDE, file=FP8), "kv_dtype", None, ""),
        (settings(VLLM, "--block-size", "64", file={"block_size": 16}), "block_size", 64, "args"),
        (settings(VLLM, file={"max-model-len": 4096}), "context_length", 4096, "config"),
        (settings(VLLM, file={"max_model_len": 4096}), "context_length", 4096, "config"),
        (
            settings(Engine.MOCKER, "--block-size", "64", file={"engine": {"block_size": 16}}),
            *("block_size", 16, "config"),
        ),
        (settings(Engine.SGLANG), "context_length", None, ""),
    ],
)
def test_the_source_that_wins(read: Settings, name: str, value: Any, source: str) -> None:
    setting = read.common(name)
    assert (setting and setting.value) == value
    assert (setting.location.what if setting else "") == source


def test_a_json_flag_may_come_in_parts_of_json_numbers_or_lists() -> None:
    """As vllm/utils/argparse_utils.py 0.31.0 reads them."""
    read = settings(
        VLLM,
        *("--compilation-config.mode", "3"),
        *("--compilation_config.pass_config.fuse_allreduce_rms", "true"),
        *("--compilation-config.cudagraph_capture_sizes+", "1,8"),
        *("--kv-transfer-config.kv_buffer_size", "1k", "--kv-transfer-config.kv_role", "kv_both"),
    )
    assert read.value("compilation-config") == {
        "mode": 3,
        "pass_config": {"fuse_allreduce_rms": True},
        "cudagraph_capture_sizes": ["1", "8"],
    }
    assert read.value("kv-transfer-config") == {"kv_buffer_size": 1000, "kv_role": "kv_both"}
    assert read.value("kv-transfer-config.kv_role") == "kv_both"


def test_parts_replace_their_section_in_the_file() -> None:
    file = {"kv-events-config": {"enable_kv_cache_events": True}, "block-size": 64}
    read = settings(VLLM, "--kv-events-config.publisher", "zmq", file=file)
    assert read.value("kv-events-config") == {"publisher": "zmq"}
    assert list(read.replaced) == ["kv-events-config"]
    assert read.value("block-size") == 64


def test_a_boolean_that_tensorrt_llm_converts_from_text_is_one() -> None:
    """As pydantic reads it, at every level of the file and of the override."""
    read = settings(
        TRTLLM,
        *("--trtllm.kv_cache_config.enable_block_reuse", "off"),
        file={
            "enable_chunked_prefill": "Yes",
            "cuda_graph_config": {"enable_padding": "t", "max_batch_size": "1"},
            "load_format": "on",
        },
    )
    keys = ("enable_chunked_prefill", "kv_cache_config.enable_block_reuse", "load_format")
    assert [read.value(key) for key in keys] == [True, False, "on"]
    assert read.value("cuda_graph_config") == {"enable_padding": True, "max_batch_size": "1"}
