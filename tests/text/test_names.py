"""Names that are suggested instead of one that does not exist."""

from __future__ import annotations

import pytest

from penstock.text.names import nearest, nearest_name

FLAGS = ("--pooler-config", "--max-num-batched-tokens", "--enable-lora", "--max-num-seqs")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--max-num-batch-tokens", "--max-num-batched-tokens"),
        ("--max-num-seq", "--max-num-seqs"),
        ("--max-seqs", "--max-num-seqs"),
        ("--enable-lore", "--enable-lora"),
        ("--enablelora", "--enable-lora"),
    ],
)
def test_a_mistyped_name_is_corrected(written: str, meant: str) -> None:
    assert nearest_name(written, FLAGS, 0.75) == meant


@pytest.mark.parametrize("written", ["--moe-config", "--enable-dbo", "--disable-lora"])
def test_a_name_of_other_words_is_not_suggested(written: str) -> None:
    assert nearest(written, FLAGS, 0.75) != ""
    assert nearest_name(written, FLAGS, 0.75) == ""
