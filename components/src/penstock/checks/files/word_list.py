"""The words of a container's `args` or `command`, to find flags in them.

There may be thousands of words and as many findings: the words are read once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from penstock.manifests.documents import Cursor


@dataclass(frozen=True)
class WordList:
    cursor: Cursor

    def find(self, flag: str) -> Cursor | None:
        """The first word that is the flag or its `flag=value`, or a script with the flag."""
        in_script = next(
            (at for at, text in self._scripts if position_in(text, flag) is not None), None
        )
        found = [
            at for at in (self._by_flag.get(_with_underscores(flag)), in_script) if at is not None
        ]
        if not found:
            return None
        at = min(found)
        return Cursor(self.cursor.document, self._values[at], (*self.cursor.path, at))

    @property
    def _values(self) -> list[object]:
        return self.cursor.value if isinstance(self.cursor.value, list) else []

    @cached_property
    def _words(self) -> tuple[tuple[int, str], ...]:
        return tuple((at, word) for at, word in enumerate(self._values) if isinstance(word, str))

    @cached_property
    def _by_flag(self) -> dict[str, int]:
        """Flag → index of its first word."""
        words = reversed(self._words)
        return {_with_underscores(word.split("=")[0]): at for at, word in words}

    @cached_property
    def _scripts(self) -> tuple[tuple[int, str], ...]:
        return tuple((at, word) for at, word in self._words if " " in word)


def position_in(text: str, flag: str) -> int | None:
    """Where a script has a flag, in one of the spellings that argparse of the engines accepts."""
    words = "[-_]".join(map(re.escape, re.split("[-_]", flag[2:])))
    match = re.search(rf"{re.escape(flag[:2])}{words}(?![\w.-])", text)
    return match.start() if match else None


def _with_underscores(flag: str) -> str:
    """`--block_size` of `--block-size`."""
    return f"--{flag[2:].replace('-', '_')}" if flag.startswith("--") else flag
