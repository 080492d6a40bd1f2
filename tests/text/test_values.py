"""Values whose type or length is not known."""

from __future__ import annotations

import pytest

from penstock.text.values import last_words


@pytest.mark.parametrize(
    ("text", "most", "line"),
    [
        ("no data\n  for rank 0", 20, "no data for rank 0"),
        ("no data\n  for rank 0", 9, "… rank 0"),
        ("no data for rank 0", 7, "… rank 0"),
        ("abcdefgh", 3, "…fgh"),
    ],
)
def test_a_long_message_is_cut_between_words(text: str, most: int, line: str) -> None:
    assert last_words(text, most) == line
