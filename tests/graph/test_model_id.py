"""Malformed IDs of models, and what to write instead."""

from __future__ import annotations

import pytest

from penstock.graph.model_id import is_model_id, model_id_problem
from penstock.models.known import known_ids


@pytest.mark.parametrize("name", [*known_ids(), "m", "1", "a/b", "a.-b", "x/" + "n" * 96])
def test_a_well_formed_id_has_no_problem(name: str) -> None:
    assert model_id_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem", "written"),
    [
        ("https://huggingface.co/openai/gpt-oss-120b", "an address", "openai/gpt-oss-120b"),
        ("https://huggingface.co/a/b/tree/main", "an address", "a/b"),
        ("huggingface.co/a/b?x=1", "an address", "a/b"),
        ("hf://a/b", "an address", "a/b"),
        ("https://example.com/a/b", "an address", "openai/gpt-oss-120b"),
        ("openai/gpt oss-120b", "contains a space", "openai/gpt-oss-120b"),
        ("openai / gpt-oss-120b", "contains a space", "openai/gpt-oss-120b"),
        ("a/b ", "contains a space", "a/b"),
        ("openai/gpt-oss-120b/", "ends with a slash", "openai/gpt-oss-120b"),
        ("a/b.git", "is not the ID", "a/b"),
        ("/models/a", "is a path", "model.path"),
        ("./a", "is a path", "model.path"),
        ("models/a/b", "is a path", "model.path"),
        ("a/b--c", "is not the ID", "openai/gpt-oss-120b"),
        ("a/b..c", "is not the ID", "openai/gpt-oss-120b"),
        ("-a", "is not the ID", "openai/gpt-oss-120b"),
        ("a/b:Q4_K_M", "is not the ID", "openai/gpt-oss-120b"),
        ("x/" + "n" * 97, "is not the ID", "openai/gpt-oss-120b"),
    ],
)
def test_the_id_to_write_is_well_formed(name: str, problem: str, written: str) -> None:
    found = model_id_problem(name)
    assert found is not None
    message, fix = found
    assert problem in message
    assert f"`{written}`" in fix
    assert is_model_id(written)
