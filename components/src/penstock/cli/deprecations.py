"""Old names of commands, options and keys: each is accepted for one release, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

# Old command → the words of the new one.
RENAMED_COMMANDS = {
    "completion": "tools completion",
    "env": "tools env",
    "page": "top --web",
    "schema": "tools schema",
    "tiny-model": "tools tiny-model",
    "tune": "plan --router",
}


def current_command(command: str, rest: Sequence[str]) -> tuple[str, list[str]]:
    """The command and its arguments under their current names; prints a warning for an old one."""
    if command == "bench" and any(word.partition("=")[0] == "--method" for word in rest):
        if rest[0] != "public":
            warn_renamed("penstock bench", "bench --method", "bench public --method")
            return command, ["public", *rest]
    elif command in RENAMED_COMMANDS:
        current = RENAMED_COMMANDS[command]
        warn_renamed("penstock", command, current)
        command, *words = current.split()
        return command, [*words, *rest]
    return command, list(rest)


def warn_renamed(prog: str, old: str, new: str) -> None:
    message = f"{old} is now {new}; the old name is accepted for one release"
    print(f"{prog}: warning: {message}", file=sys.stderr)


@contextmanager
def shown_on_stderr(verb: str) -> Iterator[None]:
    """Print each `DeprecatedKeyWarning` once, as a line of ``verb``."""
    with warnings.catch_warnings():
        show_other = warnings.showwarning
        printed: set[str] = set()

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            from penstock.graph.renamed_keys import DeprecatedKeyWarning

            if not isinstance(message, DeprecatedKeyWarning):
                show_other(message, category, filename, lineno, file, line)
            elif str(message) not in printed:
                printed.add(str(message))
                print(f"penstock {verb}: warning: {message}", file=sys.stderr, flush=True)

        warnings.showwarning = show
        warnings.filterwarnings("always", category=FutureWarning, module=r"penstock\.")
        yield
