"""Brace expansion, bash's first step: `{a,b}` and `{1..3}` expand to several words."""

from __future__ import annotations

import itertools
import re

from penstock.manifests.shell.lex import LexError, skip

_MOST = 10_000  # words; a launch has dozens, and `{1..9}{1..9}…` grows without limit

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([A-Za-z])\.\.([A-Za-z])")


def expand_braces(word: str) -> list[str]:
    """The words to which bash expands ``word``; the word itself without braces."""
    at = 0
    while at < len(word):
        if word[at] == "{":
            end, commas = _closing(word, at)
            parts = _parts(word, at, end, commas) if end is not None else None
            if parts is not None and end is not None:
                head, rest = word[:at], expand_braces(word[end + 1 :])
                middle = [word for part in parts for word in expand_braces(part)]
                if len(middle) * len(rest) > _MOST:
                    raise LexError(f"a brace expansion has more than {_MOST} words")
                return [head + m + t for m in middle for t in rest]
        at = skip(word, at)
    return [word]


def _closing(word: str, at: int) -> tuple[int | None, list[int]]:
    """The index of the `}` for the `{` at ``at``, and of the commas that belong to it."""
    depth = 0
    commas: list[int] = []
    at += 1
    while at < len(word):
        char = word[at]
        if char == "}" and depth == 0:
            return at, commas
        if char == "," and depth == 0:
            commas.append(at)
        depth += {"{": 1, "}": -1}.get(char, 0)
        at = skip(word, at)
    return None, []


def _parts(word: str, start: int, end: int, commas: list[int]) -> list[str] | None:
    if not commas:
        return _range(word[start + 1 : end])
    bounds = [start, *commas, end]
    return [word[a + 1 : b] for a, b in itertools.pairwise(bounds)]


def _range(text: str) -> list[str] | None:
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last, step, a, b = match.groups()
    if a is not None:
        return [chr(code) for code in _steps(ord(a), ord(b), 1)]
    if abs(int(last) - int(first)) > _MOST:
        raise LexError(f"a brace expansion has more than {_MOST} words")
    width = max(len(first), len(last)) if _is_padded(first) or _is_padded(last) else 0
    return [str(n).zfill(width) for n in _steps(int(first), int(last), abs(int(step or 1)) or 1)]


def _is_padded(number: str) -> bool:
    return bool(re.match(r"-?0\d", number))


def _steps(first: int, last: int, step: int) -> range:
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
