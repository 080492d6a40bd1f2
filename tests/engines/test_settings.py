"""What a worker is set to: sources in the order in which its engine merges them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.settings import Settings, read_settings
from penstock.manifests.deployment import Engine, KnownConfig, Launch, NoConfig
from tests.engines.launches import component


def settings(
    engine: Engine, *arguments: str, file: dict[str, Any] | None = None, **env: str
) -> Settings:
    launch = Launch(argv=("python3", "-m", f"dynamo.{engine}", *arguments), env=env)
    config = KnownConfig(values=file, path="/e.yaml", place="ConfigMap/e/e.yaml") if file else None
    return read_settings(component(launch, engine, config or NoConfig()), launch)


def common(found: Settings, name: str) -> tuple[Any, str]:
    setting = found.common(name)
    assert setting is not None
    return setting.value, setting.location.what


def test_the_file_overrides_the_command_line_which_overrides_variables() -> None:
    variable = {"DYN_TRTLLM_MAX_NUM_TOKENS": "1"}
    assert common(settings(Engine.TRTLLM, **variable), "max_batch_tokens") == (1, "env")
    flag = ("--max-num-tokens", "2")
    assert common(settings(Engine.TRTLLM, *flag, **variable), "max_batch_tokens") == (2, "args")
    both = settings(Engine.TRTLLM, *flag, file={"max_num_tokens": 3}, **variable)
    assert common(both, "max_batch_tokens") == (3, "config")


def test_the_kv_cache_of_the_file_merges_over_the_command_lines() -> None:
    found = settings(
        Engine.TRTLLM,
        "--free-gpu-memory-fraction",
        "0.7",
        file={"kv_cache_config": {"dtype": "fp8"}},
    )
    assert common(found, "memory_fraction") == (0.7, "args")
    assert common(found, "kv_dtype") == ("fp8", "config")


def test_an_override_replaces_the_entire_kv_cache_config() -> None:
    found = settings(
        Engine.TRTLLM,
        "--override-engine-args",
        '{"kv_cache_config": {"tokens_per_block": 64}}',
        file={"kv_cache_config": {"dtype": "fp8"}},
    )
    assert common(found, "block_size") == (64, "args")
    assert found.common("kv_dtype") is None


def test_with_vllm_the_command_line_overrides_the_file() -> None:
    found = settings(Engine.VLLM, "--block-size", "64", file={"block_size": 16})
    assert common(found, "block_size") == (64, "args")


@pytest.mark.parametrize("key", ["max-model-len", "max_model_len"])
def test_keys_of_the_file_have_dashes_or_underscores(key: str) -> None:
    assert common(settings(Engine.VLLM, file={key: 4096}), "context_length") == (4096, "config")


def test_a_json_flag_may_come_in_parts() -> None:
    found = settings(Engine.VLLM, "--kv-transfer-config.kv_role", "kv_both")
    section = found.get("kv-transfer-config")
    assert section is not None
    assert section.value == {"kv_role": "kv_both"}
    part = found.get("kv-transfer-config.kv_role")
    assert part is not None
    assert part.value == "kv_both"


def test_parts_are_json_numbers_or_lists() -> None:
    """As vllm/utils/argparse_utils.py 0.31.0 reads them."""
    found = settings(
        Engine.VLLM,
        *("--compilation-config.mode", "3"),
        *("--compilation_config.pass_config.fuse_allreduce_rms", "true"),
        *("--compilation-config.cudagraph_capture_sizes+", "1,8"),
        *("--kv-transfer-config.kv_buffer_size", "1k"),
    )
    section = found.get("compilation-config")
    assert section is not None
    assert section.value == {
        "mode": 3,
        "pass_config": {"fuse_allreduce_rms": True},
        "cudagraph_capture_sizes": ["1", "8"],
    }
    size = found.get("kv-transfer-config.kv_buffer_size")
    assert size is not None
    assert size.value == 1000


def test_parts_replace_their_section_in_the_file() -> None:
    file = {"kv-events-config": {"enable_kv_cache_events": True}, "block-size": 64}
    found = settings(Engine.VLLM, "--kv-events-config.publisher", "zmq", file=file)
    section = found.get("kv-events-config")
    assert section is not None
    assert section.value == {"publisher": "zmq"}
    assert list(found.replaced) == ["kv-events-config"]
    assert common(found, "block_size") == (64, "config")


def test_the_mockers_file_replaces_its_command_line() -> None:
    found = settings(Engine.MOCKER, "--block-size", "64", file={"engine": {"block_size": 16}})
    assert common(found, "block_size") == (16, "config")


def test_a_boolean_that_tensorrt_llm_converts_from_text_is_one() -> None:
    """As pydantic reads it, at every level of the file and of the override."""
    found = settings(
        Engine.TRTLLM,
        *("--trtllm.kv_cache_config.enable_block_reuse", "off"),
        file={
            "enable_chunked_prefill": "Yes",
            "cuda_graph_config": {"enable_padding": "t", "max_batch_size": "1"},
            "load_format": "on",
        },
    )
    keys = ("enable_chunked_prefill", "kv_cache_config.enable_block_reuse", "load_format")
    values = [setting.value for key in keys if (setting := found.get(key))]
    assert values == [True, False, "on"]
    graphs = found.get("cuda_graph_config")
    assert graphs is not None
    assert graphs.value == {"enable_padding": True, "max_batch_size": "1"}


def test_an_unset_setting_is_none() -> None:
    assert settings(Engine.SGLANG).common("context_length") is None
