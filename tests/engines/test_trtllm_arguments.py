"""TensorRT-LLM's engine file: the table of its arguments, and what is refused in a file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, Field, field_validator

import dump_trtllm_arguments
from penstock.engines.flags import load
from penstock.engines.trtllm_arguments import TABLE, Kind, refused_settings
from penstock.engines.trtllm_history import DEPRECATED, REMOVED
from penstock.manifests.deployment import KnownConfig
from penstock.manifests.source import open_source
from tests.support.command_line import ROOT

FILE: dict[str, Any] = load(TABLE)["file"]
METHODS = FILE["keys"]["speculative_config"]["options"]
# The names and choices of six classes in the API reference of 1.3.0rc29.
REFERENCE = json.loads(Path(__file__).with_name("trtllm_reference.json").read_text("utf-8"))
SECTIONS = {
    "TorchLlmArgs": FILE,
    "KvCacheConfig": FILE["keys"]["kv_cache_config"],
    "CacheTransceiverConfig": FILE["keys"]["cache_transceiver_config"],
    "MoeConfig": FILE["keys"]["moe_config"],
    "Eagle3DecodingConfig": METHODS["Eagle3"],
    "MTPDecodingConfig": METHODS["MTP"],
}
SPECULATION = {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "m"}
SUFFIX = {"decoding_type": "SA", "max_draft_len": 3}


@pytest.mark.parametrize("name", SECTIONS)
def test_the_table_has_the_names_and_choices_of_the_release(name: str) -> None:
    published, keys = REFERENCE["classes"][name], SECTIONS[name]["keys"]
    # A file cannot contain the session of `mpi_session`.
    assert set(published["fields"]) - {"mpi_session"} == set(keys)
    for key, choices in published["choices"].items():
        assert set(keys[key].get("of", ())) == set(choices or ()), key


@pytest.mark.parametrize(
    "values",
    [
        {"max_batch_size": 64, "kv_cache_config": {"dtype": "fp8"}},
        {"max_batch_size": "64", "enable_chunked_prefill": 1, "max_num_tokens": 64.0},
        {"skip_tokenizer_init": "Yes", "batch_wait_timeout_ms": "0.5"},
        {"cache_transceiver_config": {"agent_bounce_params": {"a": "b"}}},
        {"attn_backend": "flashinfer", "load_format": "GMS"},
        {"env_overrides": {"X": 1, "Y": True}},
        {"hf_revision": "main", "load_format": 1},
        {"kv_cache_config": {"max_attention_window": [128, -1], "pool_ratio": [0.5, 0.5]}},
        {"kv_cache_config": {"dtype": "FP8"}},
        {"kv_cache_config": {"dtype": "bfloat16"}},
        {"multimodal_config": None, "cuda_graph_config": None},
        {"cuda_graph_config": {"mode": "encode", "seq_lens": [1]}},
        {"moe_config": {"load_balancer": "/balancer.yaml"}},
        {"moe_config": {"load_balancer": {"initial_global_assignments": {0: [1, 2]}}}},
        {"speculative_config": {**SPECULATION, "sa_config": {"threshold": 1}}},
        {"speculative_config": {**SPECULATION, "draft_len_schedule": {"1": 3}}},
        {"speculative_config": {"decoding_type": "User_Provided", "drafter": "d"}},
    ],
)
def test_a_value_that_the_release_accepts_is_accepted(values: dict[str, Any]) -> None:
    assert [*refused_settings(values)] == []


@pytest.mark.parametrize(
    ("values", "kind", "at", "fix"),
    [
        ({"max_batch_sise": 1}, "unknown", "", "Did you mean `max_batch_size`?"),
        ({"kv_cache_config": {"dtypee": "fp8"}}, "unknown", "", "Did you mean `dtype`?"),
        ({"kv_cache_config": {"kv_pool_rebalance_check_interval": 3}}, "unknown", "", "Remove it."),
        ({"moe_config": {"load_balancer": {"slots": 1}}}, "unknown", "", "num_slots"),
        ({"mpi_session": {}}, "unknown", "", "Remove it"),
        ({"moe_config": {"backend": "TRTLM"}}, "value", "", "Did you mean `TRTLLM`?"),
        ({"moe_config": {"backend": "WIDEEP"}}, "removed", "", "CUTEDSL"),
        ({"use_cuda_graph": True}, "removed", "", "cuda_graph_config"),
        ({"cache_transceiver_config": {"backend": "nixl"}}, "value", "", "NIXL"),
        ({"load_format": "safetensors"}, "value", "", "Did you mean `auto`?"),
        ({"load_format": True}, "value", "", "Use one of auto, dummy"),
        ({"kv_cache_config": {"dtype": "fp8_e4m3"}}, "value", "", "Did you mean `fp8`?"),
        (
            {"nvfp4_gemm_config": {"allowed_backends": ["cutlas"]}},
            "value",
            "nvfp4_gemm_config.allowed_backends.0",
            "cutlass",
        ),
        ({"attention_dp_config": None}, "value", "", "Remove attention_dp_config, or set a value."),
        ({"kv_cache_config": 4}, "value", "", "Write a mapping of keys."),
        ({"kv_cache_config": {"use_kv_cache_manager_v2": 3}}, "value", "", "Write a boolean."),
        ({"kv_cache_config": {"free_gpu_memory_fraction": 1.5}}, "value", "", "equal to 1."),
        ({"kv_cache_config": {"max_util_for_resume": 0}}, "value", "", "greater than 0."),
        ({"kv_cache_config": {"pool_ratio": []}}, "value", "", "a value that is not empty."),
        ({"kv_cache_config": {"pool_ratio": "half"}}, "value", "", "Write a list."),
        ({"kv_cache_config": {"kv_events_config": {"endpoint": ""}}}, "value", "", "not empty."),
        ({"stream_interval": 0}, "value", "", "a number greater than or equal to 1."),
        ({"stream_interval": 1.5}, "value", "", "Write an integer."),
        ({"stream_interval": float("inf")}, "value", "", "Write a finite number."),
        ({"batch_wait_timeout_ms": "soon"}, "value", "", "Write a number."),
        ({"model_kwargs": {1: 2}}, "value", "", "Write a string."),
        (
            {
                "kv_cache_config": {
                    "mamba_state_config": {"additional_snapshot_offsets_from_end": [True]}
                }
            },
            "value",
            "kv_cache_config.mamba_state_config.additional_snapshot_offsets_from_end.0",
            "Write an integer.",
        ),
        ({"speculative_config": {"decoding_type": "Medusa"}}, "removed", "", "Eagle3"),
        ({"speculative_config": {"decoding_type": "Eagle9"}}, "value", "", "mean `Eagle"),
        ({"speculative_config": {"max_draft_len": 3}}, "value", "speculative_config", "decoding"),
        (
            {"speculative_config": {"decoding_type": "PARD"}},
            "value",
            "speculative_config",
            "Set speculative_config.max_draft_len.",
        ),
        (
            {"speculative_config": {**SUFFIX, "max_matching_ngram_size": 0}},
            "value",
            "speculative_config.max_matching_ngram_size",
            "other than 0.",
        ),
    ],
)
def test_what_the_release_rejects_is_reported_once(
    values: dict[str, Any], kind: str, at: str, fix: str
) -> None:
    """``at``: the dotted key; empty for the first key of each level."""
    (refusal,) = refused_settings(values)
    assert refusal.kind == kind
    assert ".".join(map(str, refusal.path)) == (at or first_keys(values))
    assert fix in refusal.fix


def first_keys(values: Any) -> str:
    if not isinstance(values, dict) or not values:
        return ""
    key, inner = next(iter(values.items()))
    return f"{key}.{first_keys(inner)}".rstrip(".")


def test_all_problems_are_reported_at_once() -> None:
    wrong = {"a": 1, "b": 2, "max_num_tokens": -1, "moe_config": {"backend": 3}}
    assert len([*refused_settings(wrong)]) == 4


@pytest.mark.parametrize("key", REMOVED)
def test_a_removed_key_is_reported_as_removed(key: str) -> None:
    head, *rest = key.split(".")
    value: Any = {rest[0]: 1} if len(rest) == 1 else {rest[0]: {rest[1]: 1}} if rest else 1
    if head == "speculative_config":
        value |= SPECULATION
    reported = [(r.kind, ".".join(map(str, r.path))) for r in refused_settings({head: value})]
    assert reported == [(Kind.REMOVED, key)]


def test_a_deprecated_key_is_still_accepted() -> None:
    assert {key for key in DEPRECATED if "." not in key} <= FILE["keys"].keys()


def test_the_engine_files_of_the_shipped_graphs_are_accepted() -> None:
    graphs = [p for p in (ROOT / "dynamo_graphs").glob("*.yaml") if "kind: trtllm" in p.read_text()]
    for graph in graphs:
        configs = [c.engine_config for c in open_source(graph).deployment.components]
        known = [config.values for config in configs if isinstance(config, KnownConfig)]
        assert known
        assert [refusal for values in known for refusal in refused_settings(values)] == []


class Cache(BaseModel):
    dtype: Literal["auto", "fp8"] = "auto"
    windows: Annotated[list[int], Field(min_length=1)] | None = None

    @field_validator("dtype")
    @classmethod
    def as_it_is(cls, value: str) -> str:
        return value


class Arguments(BaseModel):
    size: Annotated[int, Field(ge=1)]
    revision: str | None = Field(None, validation_alias=AliasChoices("revision", "hf_revision"))
    cache: Cache | str = Cache()
    second_cache: Cache | None = None
    names: dict[int, float] = Field(default_factory=dict)
    other: bytes = b""


def test_the_script_reads_the_types_of_pydantic_models() -> None:
    cache = {
        "type": "section",
        "keys": {
            "dtype": {"type": "choice", "of": ["auto", "fp8"]},
            "windows": {"type": "list", "items": {"type": "int"}, "min_length": 1, "null": True},
        },
    }
    assert dump_trtllm_arguments.of_model(Arguments) == {
        "type": "section",
        "keys": {
            "size": {"type": "int", "ge": 1},
            "revision": {"type": "str", "null": True},
            "cache": {"type": "one of", "options": [cache, {"type": "str"}]},
            "second_cache": {**cache, "null": True},
            "names": {"type": "dict", "names": {"type": "int"}, "values": {"type": "float"}},
            "other": {"type": "any", "null": True},
        },
        "required": ["size"],
        "aliases": {"hf_revision": "revision"},
    }


def test_the_table_has_what_only_code_of_the_engine_checks() -> None:
    assert dump_trtllm_arguments.completed(copy.deepcopy(FILE)) == FILE
