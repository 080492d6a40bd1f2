"""The tokens behind text that llama.cpp sends at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from penstock.llamacpp.token_text import Vocabulary, byte_alphabet
from penstock.tokenizer import FOLDER

CHARACTER = {byte: character for character, byte in byte_alphabet().items()}
TEXTS = ["😀", "漢字", "👩‍👩‍👧", "क्षि", "né", "한국어", "🏳️‍🌈", "…", "∮ E⋅da"]


def written(folder: Path, words: Sequence[bytes]) -> Vocabulary:
    """All bytes, then ``words`` without merges, then one special token."""
    alphabet = [CHARACTER[byte] for byte in range(256)]
    names = alphabet + ["".join(CHARACTER[byte] for byte in word) for word in words]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return Vocabulary(file)


@cache
def packaged() -> Vocabulary:
    return Vocabulary(FOLDER / "tokenizer.json")


def test_every_byte_has_one_character() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizers_own_tokens_are_found(text: str) -> None:
    encoded = packaged().encode(text)
    assert packaged().tokens(text, encoded[-1], len(encoded)) == encoded


@given(st.text(min_size=1, max_size=8))
def test_tokens_of_any_text_are_found_from_the_last_one(text: str) -> None:
    encoded = packaged().encode(text)
    assert packaged().tokens(text, encoded[-1], len(encoded)) == encoded


def test_another_split_than_the_tokenizers_own_is_found_by_its_bytes(tmp_path: Path) -> None:
    """The model may generate tokens that the tokenizer would join, or split."""
    face = "😀".encode()
    vocabulary = written(tmp_path, [face[:2], face[2:], face[:3]])
    first, second, long = 256, 257, 258
    assert vocabulary.encode("😀") == list(face), "the tokenizer has no merges"
    assert vocabulary.tokens("😀", second, 2) == [first, second]
    assert vocabulary.tokens("😀", face[3], 2) == [long, face[3]]
    assert vocabulary.tokens("😀", face[3], 3) == [first, face[2], face[3]]
    assert vocabulary.tokens("😀", face[3], 4) == list(face)


def test_text_that_no_tokens_have_is_unknown(tmp_path: Path) -> None:
    vocabulary = written(tmp_path, [])
    face = "😀".encode()
    assert vocabulary.tokens("😀", 65, 4) == [], "the last token has other bytes"
    assert vocabulary.tokens("😀", face[3], 3) == [], "no three tokens have four bytes"
    assert vocabulary.tokens("�", face[0], 1) == [], "a cut character is sent as U+FFFD"
    assert vocabulary.tokens("<|end|>", 9999, 2) == [], "no such token"
