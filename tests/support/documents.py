"""The blocks of README.md and docs/: what tests run, parse and look at.

A block of commands is marked with `bash`, and tests/e2e/test_readme.py runs it. A comment before it
can change that: `<!-- run by make long: REASON -->`, `<!-- run elsewhere: TEST FILE, REASON -->` or
`<!-- not run: REASON -->`. `python -m tests.support.documents` lists the blocks with a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
}
FENCE = re.compile(
    r"^(?P<mark>(?: *<!-- [^\n]* -->\n)?)(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
LONG = re.compile(r"<!-- run by make long: (.+?) -->")
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
ELSEWHERE = re.compile(r"<!-- run elsewhere: (tests/[\w/]+\.py), (.+?) -->")


@dataclass(frozen=True)
class Block:
    """One fenced block. ``mark`` is the comment in the line before it."""

    page: str
    heading: str
    language: str
    text: str
    mark: str

    @property
    def is_run(self) -> bool:
        """Whether `make test` runs the block, after the other blocks of its page."""
        return self.language == "bash" and not self.reason

    @property
    def is_long(self) -> bool:
        """Whether `make long` runs the block, by itself."""
        return bool(LONG.search(self.mark))

    @property
    def reason(self) -> str:
        """Why `make test` does not run the block as it is, or nothing."""
        found = LONG.search(self.mark) or NOT_RUN.search(self.mark) or ELSEWHERE.search(self.mark)
        return ": ".join(found.groups()) if found else ""

    @property
    def test_file(self) -> Path | None:
        """The test that runs the block instead."""
        found = ELSEWHERE.search(self.mark)
        return ROOT / found[1] if found else None

    @property
    def is_excluded(self) -> bool:
        """Whether no test runs the block."""
        return bool(NOT_RUN.search(self.mark))

    def commands(self) -> list[str]:
        """One command a line; a quoted argument may continue over several lines."""
        joined = self.text.replace("\\\n", " ")
        lines: list[str] = []
        for line in joined.splitlines():
            if lines and lines[-1].count("'") % 2:
                lines[-1] += f"\n{line}"
            elif line.strip():
                lines.append(line)
        return [re.sub(r"\s+# [^'\n]*$", "", line).strip() for line in lines]


def blocks() -> list[Block]:
    """All fenced blocks, in the order of the pages and of their text."""
    return [block for page, text in PAGES.items() for block in _blocks(page, text)]


def _blocks(page: str, text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        before = text[: match.start()]
        headings = re.findall(r"^##? (.+)$", FENCE.sub("", before), re.MULTILINE)
        indent = match["indent"]
        found.append(
            Block(
                page=page,
                heading=headings[-1] if headings else "",
                language=match["language"],
                text="\n".join(line.removeprefix(indent) for line in match["text"].splitlines()),
                mark=match["mark"].strip(),
            )
        )
    return found


if __name__ == "__main__":
    for block in blocks():
        if block.language == "bash" and block.reason:
            print(f"{block.page}: {block.text.splitlines()[0]}\n    {block.reason}")
