"""The blocks of README.md and docs/: what tests run, parse and look at.

A block of commands is marked with `bash`, and tests/e2e/test_readme.py runs it. A comment before it
can change that: `<!-- run by make nightly: REASON -->`, `<!-- not run: REASON -->` or
`<!-- run elsewhere: TEST FILE, REASON -->`. `python -m tests.support.documents` lists what is not
run as it stands, and so does a page of the site.

A block of output is marked with `text`, and a comment says which: docs/outputs.py fills
`<!-- output: penstock COMMAND -->`; `<!-- part of the output: penstock VERB -->` has lines that a
command of the page prints; `<!-- not output: REASON -->` is something else.
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
NIGHTLY = re.compile(r"<!-- run by make nightly: (.+?) -->")
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
ELSEWHERE = re.compile(r"<!-- run elsewhere: (tests/[\w/]+\.py), (.+?) -->")
# What is not run in any block, and why.
INSTALLED = {
    "pip install uv && ": "uv runs the tests",
    "uv run penstock tools env install NAME": "`make environments` installs them beforehand; "
    "without them, the page's test skips",
}
ENVIRONMENT = re.compile(r"penstock tools env install (\S+)")
ABOUT = """\
# Tests of the commands

A test runs every block of commands in these documents, in the order of its page and with copies of
the graphs. `penstock up` runs in the background there and on a free port. These parts are left out:

| Part | Reason |
|---|---|
"""
SECTIONS = {
    "Not run": "No test runs these blocks.",
    "Run by another test": "The named test runs the same commands with other files.",
    "Run by `make nightly`": "These blocks take longer. `make test` leaves them out.",
}
PART = re.compile(r"<!-- part of the output: penstock (\w+) -->")
OUTPUT = re.compile(rf"<!-- output: penstock .+ -->|{PART.pattern}|<!-- not output: .+ -->")


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
    def is_nightly(self) -> bool:
        """Whether `make nightly` runs the block, by itself."""
        return bool(NIGHTLY.search(self.mark))

    @property
    def reason(self) -> str:
        """Why `make test` does not run the block as it is, or nothing."""
        found = next(
            filter(None, (p.search(self.mark) for p in (NIGHTLY, NOT_RUN, ELSEWHERE))), None
        )
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

    @property
    def part_of(self) -> str:
        """The verb of which the block is a part of the output, or nothing."""
        found = PART.search(self.mark)
        return found[1] if found else ""

    @property
    def section(self) -> str:
        """The section of the list, for a block with a reason."""
        kinds = (self.is_excluded, self.test_file is not None, self.is_nightly)
        return next(name for name, applies in zip(SECTIONS, kinds, strict=True) if applies)

    def run_commands(self) -> list[str]:
        """The commands that a test runs: without what is installed before the tests."""
        found = [c for c in self.commands() if not ENVIRONMENT.search(c)]
        return [c.removeprefix("pip install uv && ") for c in found]

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


def listing() -> str:
    """What `make test` does not run as it stands, as Markdown."""
    rows = "".join(f"| `{part.strip()}` | {reason} |\n" for part, reason in INSTALLED.items())
    return "\n".join([ABOUT + rows, *(_section(name, text) for name, text in SECTIONS.items())])


def _section(name: str, text: str) -> str:
    found = [b for b in blocks() if b.language == "bash" and b.reason and b.section == name]
    rows = [f"| {b.page} | {b.heading} | `{_first(b)}` | {b.reason} |\n" for b in found]
    head = "| Page | Section | First command | Reason |\n|---|---|---|---|\n"
    return f"## {name}\n\n{text}\n\n{head}{''.join(rows)}"


def _first(block: Block) -> str:
    return " ".join(block.commands()[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    print(listing(), end="")
