"""How a vocabulary of byte-level BPE splits text, by GGUF's `tokenizer.ggml.pre`.

The expressions are those of each model family's own tokenizer.json. The worker compares the result
with llama.cpp's tokenizer before it serves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import Regex, pre_tokenizers

SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
START = r"[^\r\n\p{L}\p{N}]?"
O200K = "|".join(
    [
        f"{START}{UPPER}*{LOWER}+{SUFFIXES}?",
        f"{START}{UPPER}+{LOWER}*{SUFFIXES}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        REST,
    ]
)
WORDS = rf"{SUFFIXES}|{START}\p{{L}}+|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{REST}"


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> Any:
    # The model's own file says `Digits`, which Dynamo's fastokens does not read.
    digits = pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated")
    return pre_tokenizers.Sequence([digits, _gpt2()])


def _split(expression: str) -> Callable[[], Any]:
    def make() -> Any:
        split = pre_tokenizers.Split(Regex(expression), behavior="isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, level])

    return make


PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "gpt-4o": _split(O200K),
    "gpt-oss": _split(O200K),
    "llama-bpe": _split(WORDS % r"\p{N}{1,3}"),
    "llama3": _split(WORDS % r"\p{N}{1,3}"),
    "qwen2": _split(WORDS % r"\p{N}"),
}
