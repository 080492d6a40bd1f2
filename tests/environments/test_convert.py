"""The conversion of a GGUF file: names, rotated pairs, tokenizer, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.environments import convert_child as convert

TOKENS = ["<|end|>", *"0123456789", "a", "b", "Ġ", "12", "ab", "Ġa"]
FIELDS: dict[str, Any] = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.merges": ["1 2", "a b", "Ġ a"],
    "tokenizer.ggml.token_type": [3, *[1] * (len(TOKENS) - 1)],
}


def permuted(weights: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """As llama.cpp's convert_hf_to_gguf.py writes q and k."""
    rows, columns = weights.shape
    halves = weights.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


@pytest.mark.parametrize(("heads", "rows"), [(1, 4), (3, 24), (9, 72)])
def test_the_order_of_rotated_pairs_is_restored(heads: int, rows: int) -> None:
    weights = np.arange(rows * 5).reshape(rows, 5)
    stored = permuted(weights, heads)
    assert not np.array_equal(stored, weights)
    assert np.array_equal(convert.unpermuted(stored, heads), weights)


@pytest.mark.parametrize(
    ("gguf", "name"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
    ],
)
def test_tensors_get_the_names_of_transformers(gguf: str, name: str) -> None:
    assert convert.name_of(gguf) == name


def test_each_digit_is_a_token_and_a_special_token_is_one() -> None:
    tokenizer = convert.tokenizer(FIELDS)
    assert tokenizer.encode("ab12 a<|end|>").tokens == ["ab", "1", "2", "Ġa", "<|end|>"]
    assert tokenizer.decode(tokenizer.encode("ab12 a").ids) == "ab12 a"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "gpt-oss"}, "general.architecture is 'gpt-oss'"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model is 'llama'"),
        ({"tokenizer.ggml.pre": "gpt-4o"}, "only 'smollm' can be converted"),
    ],
)
def test_another_model_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert.require_supported(FIELDS | change, ["token_embd.weight"])


def test_a_model_with_an_output_matrix_is_refused() -> None:
    convert.require_supported(FIELDS, ["token_embd.weight"])
    with pytest.raises(ValueError, match="tied embeddings"):
        convert.require_supported(FIELDS, ["token_embd.weight", "output.weight"])
