"""The tokens behind a piece of text that llama.cpp sent at once.

llama.cpp does not stream tokens while they end inside a character, and then sends the text of
all of them with the id of the last. The ids of the others follow from the text. Where several
sequences of tokens have the same bytes, the tokenizer's own is taken: the text is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer


def byte_alphabet() -> Mapping[str, int]:
    """Character → byte, of byte-level BPE (GPT-2's `bytes_to_unicode`, inverted)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    mapping = {chr(byte): byte for byte in printable}
    return mapping | {chr(256 + index): byte for index, byte in enumerate(unprintable)}


class Vocabulary:
    """The bytes of each token of a tokenizer.json with byte-level BPE."""

    def __init__(self, file: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(file))

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    @property
    def special(self) -> list[str]:
        """The names of special tokens, such as `<|im_end|>`."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return [token.content for token in added if token.special]

    def names(self, tokens: Iterable[int]) -> list[str]:
        """Of the special tokens among ``tokens``, in the order of their numbers."""
        added = self._tokenizer.get_added_tokens_decoder()
        return [added[token].content for token in sorted(tokens) if token in added]

    def tokens(self, text: str, last: int, count: int) -> list[int]:
        """``count`` tokens with the bytes of ``text``, of which ``last`` is the last.

        Empty when there are none, as for text that was cut in the middle of a character.
        """
        encoded = self.encode(text)
        if len(encoded) == count and encoded[-1] == last:
            return encoded
        return self._search(text.encode("utf-8"), last, count)

    def _search(self, text: bytes, last: int, count: int) -> list[int]:
        end = self._bytes.get(last, b"")
        if not end or not text.endswith(end):
            return []
        before = self._split(text[: len(text) - len(end)], count - 1)
        return [] if before is None else [*before, last]

    def _split(self, text: bytes, count: int) -> list[int] | None:
        """``text`` as exactly ``count`` tokens, longest first."""
        if count == 0:
            return None if text else []
        for size in range(len(text) - count + 1, 0, -1):
            token = self._ids.get(text[:size])
            if token is not None:
                rest = self._split(text[size:], count - 1)
                if rest is not None:
                    return [token, *rest]
        return None

    @cached_property
    def _bytes(self) -> Mapping[int, bytes]:
        alphabet = byte_alphabet()
        special = self._tokenizer.get_added_tokens_decoder()
        return {
            number: bytes(alphabet[c] for c in token)
            for token, number in self._tokenizer.get_vocab().items()
            if number not in special and all(c in alphabet for c in token)
        }

    @cached_property
    def _ids(self) -> Mapping[bytes, int]:
        return {data: number for number, data in self._bytes.items()}
