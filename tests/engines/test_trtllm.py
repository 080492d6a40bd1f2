"""TensorRT-LLM: what its parser and worker refuse, and what the mocker takes over."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.engine import NoSimulation
from penstock.engines.parsers import NotParsed
from penstock.engines.table import simulate
from penstock.manifests.deployment import Engine, KnownConfig, NoConfig, UnknownConfig

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


def config(**values: Any) -> KnownConfig:
    return KnownConfig(values=values, path="/c/e.yaml", place="ConfigMap/c/e.yaml")


def test_prefill_and_decode_is_refused_as_flag_and_as_variable() -> None:
    assert "'prefill_and_decode'" in rejection(
        "dynamo.trtllm --disaggregation-mode prefill_and_decode"
    )
    mode = {"DYN_TRTLLM_DISAGGREGATION_MODE": "prefill_and_decode"}
    assert "no longer supported" in rejection("dynamo.trtllm", env=mode)


def test_dynamic_flags_become_an_override() -> None:
    found = settings("dynamo.trtllm --trtllm.kv_cache_config.max_tokens 640")
    assert found["override_engine_args"] == '{"kv_cache_config": {"max_tokens": 640}}'


def test_dynamic_flags_and_an_override_exclude_each_other() -> None:
    message = rejection("dynamo.trtllm --trtllm.a.b 1 --override-engine-args '{\"a\": 1}'")
    assert "mutually exclusive" in message


def test_an_override_that_is_not_a_json_object_is_rejected() -> None:
    assert "is not JSON" in rejection("dynamo.trtllm --override-engine-args '{x'")
    assert "not a JSON object" in rejection("dynamo.trtllm --override-engine-args 3")


@pytest.mark.parametrize("text", ["- a\n- b\n", "", "a: [\n"])
def test_an_engine_file_that_is_not_a_mapping_is_rejected(text: str) -> None:
    line = "dynamo.trtllm --extra-engine-args /c/e.yaml"
    assert "--extra-engine-args: /c/e.yaml" in rejection(line, files={"/c/e.yaml": text})


def test_the_yaml_overrides_the_command_line() -> None:
    found = simulated(
        Engine.TRTLLM, "--max-batch-size 8 --max-num-tokens 512", config(max_batch_size=64)
    )
    assert value_of(found, "--max-num-seqs") == "64"
    assert "concurrent sequences 64 (max_batch_size)" in found.simulated
    assert "tokens per batch 512 (--max-num-tokens)" in found.simulated


def test_the_override_takes_precedence_over_the_yaml() -> None:
    found = simulated(Engine.TRTLLM, "--trtllm.max_batch_size 16", config(max_batch_size=64))
    assert value_of(found, "--max-num-seqs") == "16"


def test_an_override_replaces_the_entire_kv_cache_config() -> None:
    yaml = config(kv_cache_config={"tokens_per_block": 64, "dtype": "fp8"})
    found = simulated(Engine.TRTLLM, "--trtllm.kv_cache_config.max_tokens 6400", yaml)
    assert value_of(found, "--block-size") == "32"
    assert value_of(found, "--num-gpu-blocks-override") == "200"
    assert value_of(found, "--kv-cache-dtype") is None
    assert line_about(found.not_simulated, "the override replaces the entire kv_cache_config")


def test_an_override_merges_into_other_mappings() -> None:
    yaml = config(speculative_config={"decoding_type": "Eagle3", "max_draft_len": 3})
    found = simulated(Engine.TRTLLM, "--trtllm.speculative_config.max_draft_len 5", yaml)
    assert "Eagle3, 5 tokens" in line_about(found.not_simulated, "speculative decoding")


def test_the_engines_block_size_overrides_the_fallback_flag() -> None:
    found = simulated(Engine.TRTLLM, "--kv-block-size 128", config(kv_cache_config={}))
    assert value_of(found, "--block-size") == "32"
    assert line_about(found.not_simulated, "--kv-block-size 128")


def test_kv_tokens_become_blocks() -> None:
    kv_cache = {"tokens_per_block": 64, "max_tokens": 100_000}
    found = simulated(Engine.TRTLLM, "", config(kv_cache_config=kv_cache))
    assert value_of(found, "--num-gpu-blocks-override") == "1562"


def test_an_unset_kv_capacity_is_reported() -> None:
    line = line_about(simulated(Engine.TRTLLM, "").not_simulated, "KV capacity")
    assert "measures it on the GPU" in line
    assert line.endswith("the mocker uses 16384")


def test_with_attention_dp_each_tensor_parallel_rank_is_a_scheduler() -> None:
    found = simulated(Engine.TRTLLM, "--tensor-parallel-size 4", config(enable_attention_dp=True))
    assert value_of(found, "--data-parallel-size") == "4"
    assert (
        value_of(simulated(Engine.TRTLLM, "--tensor-parallel-size 4"), "--data-parallel-size")
        is None
    )


def test_disabled_block_reuse_disables_prefix_caching() -> None:
    found = simulated(Engine.TRTLLM, "", config(kv_cache_config={"enable_block_reuse": False}))
    assert "--no-enable-prefix-caching" in found.arguments


def test_chunked_prefill_stays_disabled_only_if_no_prompt_is_too_long() -> None:
    short = simulated(Engine.TRTLLM, "", config(max_seq_len=4096, max_num_tokens=4096))
    assert "--no-enable-chunked-prefill" in short.arguments
    long = simulated(Engine.TRTLLM, "", config(max_seq_len=8192, max_num_tokens=4096))
    assert "--no-enable-chunked-prefill" not in long.arguments
    assert "over 4096 tokens" in line_about(long.not_simulated, "chunked prefill off")


def test_kv_events_that_the_engine_does_not_publish_are_reported() -> None:
    assert line_about(
        simulated(Engine.TRTLLM, "").not_simulated, "KV events: the engine publishes none"
    )
    published = simulated(Engine.TRTLLM, "--publish-kv-events")
    assert "KV events published (--publish-kv-events)" in published.simulated


def test_roles_names_and_endpoints_are_simulated() -> None:
    flags = "--model m --served-model-name n --disaggregation-mode decode --endpoint dyn://a.b.c"
    found = simulated(Engine.TRTLLM, flags)
    assert (found.model, found.served_names) == ("m", ("n",))
    assert value_of(found, "--disaggregation-mode") == "decode"
    assert value_of(found, "--endpoint") == "dyn://a.b.c"
    assert value_of(simulated(Engine.TRTLLM, ""), "--endpoint") is None


def test_a_configuration_in_the_image_is_reported_as_unread() -> None:
    unread = UnknownConfig(path="/opt/e.yaml", reason="it is in the image")
    found = simulated(Engine.TRTLLM, "--max-batch-size 8 --extra-engine-args /opt/e.yaml", unread)
    assert value_of(found, "--max-num-seqs") == "8"
    assert line_about(found.not_simulated, "/opt/e.yaml: it is in the image")


def test_speculation_and_parsers_are_reported_as_not_simulated() -> None:
    speculation = config(speculative_config={"decoding_type": "Eagle3", "max_draft_len": 3})
    flags = "--dyn-reasoning-parser gpt_oss --dyn-tool-call-parser harmony"
    found = simulated(Engine.TRTLLM, flags, speculation)
    assert "Eagle3, 3 tokens" in line_about(found.not_simulated, "speculative decoding")
    assert "gpt_oss, harmony" in line_about(found.not_simulated, "reasoning and tool parsers")


def test_an_encoder_has_no_mocker() -> None:
    started = launch("dynamo.trtllm --disaggregation-mode encode")
    parsed = checked("dynamo.trtllm --disaggregation-mode encode")
    found = simulate(component(started, Engine.TRTLLM, NoConfig()), started, parsed)  # type: ignore[arg-type]
    assert found == NoSimulation(reason="the mocker has no encode worker")


def test_a_launch_that_was_not_parsed_has_no_mocker() -> None:
    started = launch("dynamo.trtllm")
    unparsed = NotParsed(component="worker", reason="it reads /x")
    found = simulate(component(started, Engine.TRTLLM, NoConfig()), started, unparsed)
    assert isinstance(found, NoSimulation)
