"""Names that users write: the name that was probably meant, and without invisible characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches

# For a key of a file: `modle` is `model`; `tokenizer` is not `token_secret`.
KEY_CUTOFF = 0.75
# For one of a few names: `docs` is `document`.
CHOICE_CUTOFF = 0.5
# For the words in which two names differ: `lore` is `lora`, and `disable` is not `enable`.
WORD_CUTOFF = 0.65


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The name most similar to ``word``, ignoring case; empty when none reaches ``cutoff``."""
    return next(_similar(word, names, cutoff, most=1), "")


def did_you_mean(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The fix for a word that is none of the names; empty when none reaches ``cutoff``."""
    near = nearest(word, names, cutoff)
    return f"Did you mean `{near}`?" if near else ""


def nearest_name(word: str, names: Iterable[str], cutoff: float) -> str:
    """As `nearest`, for names of several words. It does not suggest `--pooler-config` for
    `--moe-config`, which only share a common last word."""
    near = _similar(word, names, cutoff, most=5)
    return next((name for name in near if _have_similar_words(word.lower(), name.lower())), "")


def visible(text: str) -> str:
    """The text as it is read: plain spaces, none at its ends, and no invisible characters.

    Copied text has no-break and zero-width spaces.
    """
    plain = "".join(" " if char.isspace() else char for char in text)
    return "".join(char for char in plain if char.isprintable()).strip()


def _similar(word: str, names: Iterable[str], cutoff: float, *, most: int) -> Iterator[str]:
    by_lower = {name.lower(): name for name in names}
    for name in get_close_matches(word.lower(), list(by_lower), n=most, cutoff=cutoff):
        yield by_lower[name]


def _have_similar_words(first: str, second: str) -> bool:
    """Whether the words that only one of the names has resemble each other. A name that lacks words
    of the other resembles it."""
    words, second_words = (re.findall(r"[a-z0-9]+", name) for name in (first, second))
    only_first = "".join(word for word in words if word not in second_words)
    only_second = "".join(word for word in second_words if word not in words)
    if not (only_first and only_second):
        return True
    return SequenceMatcher(None, only_first, only_second).ratio() >= WORD_CUTOFF
