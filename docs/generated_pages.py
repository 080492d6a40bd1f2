"""Pages of the site that come from elsewhere: decisions and files of the top level."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def decision_index(folder: Path) -> str:
    """A list of the decision records, from their titles."""
    lines = ["# Decisions", "", "One page per decision: context, choice, consequences.", ""]
    for path in sorted(folder.glob("[0-9]*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        number, _, text = title.partition(". ")
        lines.append(f"- [{number}]({path.name}): {text}")
    return "\n".join([*lines, ""])


def root_page(path: Path, page: str, pages: Mapping[str, str]) -> str:
    """A file of the top level as the page ``page``. Links to ``pages``, which are such files too,
    and to docs/ stay inside the site."""
    up = "../" * page.count("/")

    def link(match: re.Match[str]) -> str:
        target = match[1]
        if ":" in target or target.startswith("#"):
            return match[0]
        if target in pages:
            return f"]({up}{pages[target]}"
        if target.startswith("docs/"):
            return f"]({up}{target.removeprefix('docs/')}"
        return f"]({up}../{target}"

    return re.sub(r"\]\(([^)\s]+)", link, path.read_text("utf-8"))
