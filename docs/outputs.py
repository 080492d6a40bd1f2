"""Write the output of commands into the documents.

A comment `<!-- output: penstock check … -->` stands before a block of text, which this fills with
what the command prints. `python docs/outputs.py [--check]`; `make generate` runs it.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import textwrap
from pathlib import Path

from penstock.cli.main import main as penstock

ROOT = Path(__file__).parents[1]
WIDTH = 118
BLOCK = re.compile(r"<!-- output: penstock (.*?) -->\n```text\n(.*?)```", re.DOTALL)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_outputs(text: str) -> str:
    """``text`` with each block as its command prints it now."""

    def block(match: re.Match[str]) -> str:
        command = match[1]
        return f"<!-- output: penstock {command} -->\n```text\n{_output(command)}```"

    return BLOCK.sub(block, text)


def _output(command: str) -> str:
    """What the command prints; long lines continue with an indentation of four."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.chdir(ROOT):
        penstock(shlex.split(command))
    return "".join(f"{wrapped(line)}\n" for line in stdout.getvalue().splitlines())


def wrapped(line: str) -> str:
    """A line of output; what is longer than a page is wide continues with an indentation."""
    if len(line) <= WIDTH:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def main(argv: list[str]) -> int:
    texts = {path: path.read_text("utf-8") for path in documents()}
    stale = {path: new for path, old in texts.items() if (new := with_outputs(old)) != old}
    for path, text in stale.items():
        if "--check" in argv:
            print(f"{path.relative_to(ROOT)}: stale. Fix: Run `make generate`.", file=sys.stderr)
        else:
            path.write_text(text, "utf-8")
    return 1 if stale and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
