"""A command line of penstock in a message, as a shell reads it: paths may have spaces.

Messages contain `penstock …`; `as_invoked` replaces it by the user's own form, such as
`uv run penstock …`.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

NAME = "penstock"
UV = ("uv", "uvx")
# Options of uv that messages repeat. Others, and values with a colon such as URLs, may be secrets.
UV_OPTIONS = frozenset(
    ("--project", "--directory", "--from", "-p", "--python", "--with", "--group", "--extra")
)
UV_FLAG = "--no-sync"
PROGRAM = re.compile(rf"{NAME}(@[\w.]+)?")  # penstock@latest


class _Invocation:
    words = NAME


def command(verb: str, file: Path | str, *options: str) -> str:
    """`penstock VERB FILE OPTIONS`, in backticks."""
    return f"`{shlex.join([NAME, verb, str(file), *options])}`"


def restart(file: Path | str) -> str:
    """The two commands that stop a graph and start it again."""
    return f"{command('down', file)}, then {command('up', file)}"


def as_invoked(text: str) -> str:
    """``text`` for the user: its commands in backticks start with the words of `invocation`."""
    return text.replace(f"`{NAME} ", f"`{_Invocation.words} ")


def invocation() -> str:
    """The words before the command, such as `uv run penstock`; a next step starts with them."""
    return _Invocation.words


def set_invocation(parent: Sequence[str], command_line: Sequence[str]) -> None:
    """How the user ran this process: ``parent`` is the command line of the parent process, and
    ``command_line`` that of this one, the program first."""
    program, *arguments = command_line
    before = parent[: len(parent) - len(arguments)]
    if before and Path(before[0]).name in UV and list(parent[len(before) :]) == arguments:
        _Invocation.words = shlex.join(_uv_words(before))
    elif Path(program).name == NAME and not _is_on_path(Path(program)):
        _Invocation.words = shlex.quote(program)


def _uv_words(before: Sequence[str]) -> list[str]:
    """The words of ``before`` (uv's command line up to `penstock`) that messages may repeat.

    No options are repeated if one of them may hold a secret. The process of uvx has the command
    line `uv tool uvx`."""
    name, *rest = Path(before[0]).name, *before[1:]
    if name == "uv" and rest[:2] in (["tool", "uvx"], ["tool", "run"]):
        name, rest = "uvx", rest[2:]
    start = ["uvx"] if name == "uvx" else ["uv", "run"]
    *options, program = rest[len(start) - 1 :] or [""]
    if [name, *rest][: len(start)] == start and PROGRAM.fullmatch(program) and _may_print(options):
        return [*start, *options, program]
    return [*start, NAME]


def _may_print(options: Sequence[str]) -> bool:
    words: Iterator[str] = iter(options)
    for word in words:
        option, equals, value = word.partition("=")
        if word == UV_FLAG:
            continue
        value = value if equals else next(words, ":")  # without a value: not printed
        if option not in UV_OPTIONS or ":" in value:
            return False
    return True


def _is_on_path(program: Path) -> bool:
    program_on_path = shutil.which(NAME)
    return program_on_path is not None and Path(program_on_path).resolve() == program.resolve()


class Messages:
    """Standard error, whose commands are printed `as_invoked`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(as_invoked(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
