"""Suggest the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# For a key of a file: `modle` is `model`; `tokenizer` is not `token_secret`.
KEY_CUTOFF = 0.75
# For one of a few names: `docs` is `document`.
CHOICE_CUTOFF = 0.5


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The name most similar to ``word``, ignoring case; empty when none reaches ``cutoff``."""
    by_lower = {name.lower(): name for name in names}
    near = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else ""
