"""Characters of names that are not seen: copied text has no-break and zero-width spaces."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text as it is read: plain spaces, none at its ends, and no invisible characters."""
    plain = "".join(" " if char.isspace() else char for char in text)
    return "".join(char for char in plain if char.isprintable()).strip()
