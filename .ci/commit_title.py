"""Check the title of a commit as CONTRIBUTING.md asks; the commit-msg hook runs it with a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 72
TITLE = re.compile(r"(?P<areas>[\w./ -]+(?:, [\w./ -]+)*): (?P<sentence>\S.*)")
# git writes these itself.
GENERATED = re.compile(r'Merge |Revert "|Reapply "|(?:fixup|squash|amend)! ')
# "added", "adding"; not "need", "embed" and "bring".
NOT_IMPERATIVE = re.compile(r"(?!embed|shed|bring|ring|sing)[a-z]+(?:[^e\W]ed|ing)", re.IGNORECASE)


def problems(title: str) -> Iterator[str]:
    """What is wrong with a title, and how to change it."""
    if GENERATED.match(title):
        return
    if len(title) > LONGEST:
        yield f"it has {len(title)} characters: shorten it to {LONGEST}"
    if title.endswith("."):
        yield "it ends with a period: remove the period"
    parts = TITLE.fullmatch(title)
    if parts is None:
        yield 'it does not begin with an area: write "area: sentence", such as "plan: rank loads"'
    elif NOT_IMPERATIVE.fullmatch(word := parts["sentence"].split()[0]):
        yield f'"{word}" is not an imperative: begin with a verb such as "add"'


def main() -> int:
    title = (Path(sys.argv[1]).read_text("utf-8").splitlines() or [""])[0]
    found = [f"commit title {title!r}: {problem}" for problem in problems(title)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
