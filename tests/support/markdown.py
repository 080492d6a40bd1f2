"""Links, headings and long lines of Markdown."""

from __future__ import annotations

import re

LONGEST_LINE = 120
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]*)\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def links(text: str) -> list[tuple[str, str]]:
    """Path and anchor of each relative link."""
    found = [target for target in LINK.findall(CODE.sub("", text)) if ":" not in target]
    return [(target.partition("#")[0], target.partition("#")[2]) for target in found]


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings}


def long_lines(text: str) -> list[str]:
    """The lines above 120 characters. A row of a table cannot be wrapped."""
    lines = text.splitlines()
    return [s for s in lines if len(s) > LONGEST_LINE and not s.lstrip().startswith("|")]
