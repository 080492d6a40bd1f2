"""Shell patterns (`*`, `?`, `[…]`) as regular expressions; quoted text is literal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.manifests.shell.text import Piece, UnknownError


def pattern_of(pieces: Iterable[tuple[Piece, bool]]) -> str:
    """A regular expression for ``re.fullmatch``; raises UnknownError if a part is unknown."""
    found = []
    for piece, quoted in pieces:
        if piece.why:
            raise UnknownError(piece.why)
        found.append(re.escape(piece.text) if quoted else _translate(piece.text))
    return "".join(found)


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
