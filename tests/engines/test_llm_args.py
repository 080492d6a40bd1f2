"""TensorRT-LLM's file: the models against the facts, and what is said of a rejection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from penstock.engines.llm_args import sections
from penstock.engines.llm_args.args import TorchLlmArgs
from penstock.engines.llm_args.history import DEPRECATED, REMOVED
from penstock.engines.llm_args.speculation import Eagle3
from penstock.engines.llm_args.unsupported import Kind
from penstock.engines.llm_args.validate import validate
from tests.support import outside_files

# What the facts have and the release does not (API reference of 1.3.0rc27 and rc29).
REMOVED_SINCE = {"eagle3_one_model", "eagle_choices"}


@pytest.mark.needs("facts")
def test_every_field_of_the_facts_is_there_with_its_default() -> None:
    classes: dict[str, Any] = json.loads(outside_files.facts().read_text())["classes"]
    for name, facts in classes.items():
        model = {"TorchLlmArgs": TorchLlmArgs, "Eagle3DecodingConfig": Eagle3}.get(name)
        model = model or getattr(sections, name)
        fields = facts.get("fields", facts)
        assert set(fields) - REMOVED_SINCE <= set(model.model_fields)
        for key in set(fields) - REMOVED_SINCE:
            default, ours = fields[key].get("default"), model.model_fields[key].default
            is_plain = isinstance(default, (bool, int, float, str)) and default != "on"
            if (
                is_plain
                and ours is not PydanticUndefined
                and fields[key].get("default_verified", True)
            ):
                assert ours == default, f"{name}.{key}"


def one(values: dict[str, Any]) -> tuple[Kind, str, str]:
    (rejection,) = validate(values)
    return rejection.kind, rejection.message, rejection.fix


def test_a_valid_file_is_accepted() -> None:
    assert validate({"max_batch_size": 64, "kv_cache_config": {"dtype": "fp8"}}) == ()


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ({"max_batch_sise": 1}, Kind.UNKNOWN, "Did you mean max_batch_size?"),
        ({"kv_cache_config": {"dtypee": "fp8"}}, Kind.UNKNOWN, "Did you mean dtype?"),
        ({"moe_config": {"backend": "TRTLM"}}, Kind.VALUE, "Did you mean TRTLLM?"),
        ({"moe_config": {"backend": "WIDEEP"}}, Kind.REMOVED, "CUTEDSL"),
        ({"kv_cache_config": {"free_gpu_memory_fraction": 1.5}}, Kind.VALUE, "to 1"),
        ({"use_cuda_graph": True}, Kind.REMOVED, "cuda_graph_config"),
        ({"cache_transceiver_config": {"backend": "nixl"}}, Kind.VALUE, "NIXL"),
        ({"speculative_config": {"decoding_type": "Medusa"}}, Kind.REMOVED, "Eagle3"),
        ({"speculative_config": {"decoding_type": "Eagle9"}}, Kind.VALUE, "mean Eagle"),
        ({"stream_interval": 0}, Kind.VALUE, "a number gr"),
    ],
)  # fmt: skip
def test_a_problem_has_a_kind_and_a_fix(values: dict[str, Any], kind: Kind, words: str) -> None:
    found, _, fix = one(values)
    assert found is kind
    assert words in fix


def test_values_that_the_engine_converts_are_accepted() -> None:
    assert validate({"max_batch_size": "64", "enable_chunked_prefill": 1}) == ()


def test_all_problems_are_reported_at_once() -> None:
    assert len(validate({"a": 1, "b": 2, "max_num_tokens": -1, "moe_config": {"backend": 3}})) == 4


@pytest.mark.parametrize("key", REMOVED)
def test_a_removed_key_is_reported_as_removed(key: str) -> None:
    head, *rest = key.split(".")
    value: Any = {rest[0]: 1} if len(rest) == 1 else {rest[0]: {rest[1]: 1}} if rest else 1
    if head == "speculative_config":
        value |= {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "m"}
    found = validate({head: value})
    assert [(r.kind, ".".join(map(str, r.path))) for r in found] == [(Kind.REMOVED, key)]


@pytest.mark.parametrize("key", DEPRECATED)
def test_a_deprecated_key_is_still_accepted(key: str) -> None:
    head, *rest = key.split(".")
    if not rest:
        assert head in TorchLlmArgs.model_fields
