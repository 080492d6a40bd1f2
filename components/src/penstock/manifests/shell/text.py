"""Text of which only the cluster may know parts; those keep their spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Piece:
    """A part of a text."""

    text: str
    # Why only the cluster knows it; empty for known text.
    why: str = ""


@dataclass(frozen=True)
class Text:
    pieces: tuple[Piece, ...] = ()

    @classmethod
    def known(cls, text: str) -> Text:
        return cls((Piece(text),) if text else ())

    @classmethod
    def unknown(cls, spelling: str, why: str) -> Text:
        return cls((Piece(spelling, why),))

    @classmethod
    def merged(cls, pieces: Iterable[Piece]) -> Text:
        """Neighbors with the same ``why`` become one piece: `A=$A$A` doubles no pieces."""
        groups = groupby(pieces, key=lambda piece: piece.why)
        return cls(tuple(Piece("".join(p.text for p in group), why) for why, group in groups))

    @classmethod
    def join(cls, parts: Iterable[Text], separator: str = "") -> Text:
        pieces: list[Piece] = []
        for index, part in enumerate(parts):
            if index and separator:
                pieces.append(Piece(separator))
            pieces.extend(part.pieces)
        return cls(tuple(pieces))

    def __add__(self, other: Text) -> Text:
        return Text(self.pieces + other.pieces)

    def __str__(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def is_known(self) -> bool:
        return not any(piece.why for piece in self.pieces)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(piece.why for piece in self.pieces if piece.why))


class UnknownError(Exception):
    """A value that only the cluster knows, or a construct that penstock does not support."""


class LimitError(Exception):
    """A script beyond a limit of this reader, which follows no more of it."""


def certain(text: Text) -> str:
    """The text if all of it is known; raises UnknownError otherwise."""
    if not text.is_known:
        raise UnknownError(text.reasons[0])
    return str(text)


# The value of a variable: one text, or the elements of an array.
Value = Text | tuple[Text, ...]


def first(value: Value) -> Text:
    """The value of `$name`; of an array, its first element."""
    if isinstance(value, Text):
        return value
    return value[0] if value else Text()


def as_text(value: Value) -> Text:
    """The text, or the elements of an array with blanks between them."""
    return value if isinstance(value, Text) else Text.join(value, " ")


def is_filled(text: Text) -> bool:
    """Whether the text is not empty; raises UnknownError if nothing of it is known."""
    return any(piece.text and not piece.why for piece in text.pieces) or bool(certain(text))


def pattern_of(pieces: Iterable[tuple[Piece, bool]]) -> str:
    """A regular expression for ``re.fullmatch``; raises UnknownError if a part is unknown."""
    parts = []
    for piece, quoted in pieces:
        if piece.why:
            raise UnknownError(piece.why)
        parts.append(re.escape(piece.text) if quoted else _translate(piece.text))
    return "".join(parts)


def _translate(text: str) -> str:
    out, at = [], 0
    while at < len(text):
        char = text[at]
        end = text.find("]", at + 2) if char == "[" else -1
        if end > 0:
            body = text[at + 1 : end].replace("\\", "\\\\")
            body = "^" + body[1:] if body[0] in "!^" else body
            out.append(f"[{body}]")
            at = end + 1
            continue
        out.append({"*": ".*", "?": "."}.get(char) or re.escape(char))
        at += 1
    return "".join(out)
