"""Names of commands, options and keys that are old or of other tools.

An old name is accepted for one release, with a warning. `cli/main.py` calls this module.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from penstock.cli.command_line import suggestion

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


# Word of Helm, kubectl, Docker, Ollama and others → the command for the same purpose.
ELSEWHERE = {
    word: command
    for command, words in {
        "apply": "deploy install update",
        "check": "lint validate",
        "down": "kill stop",
        "explain": "info inspect show",
        "init": "create new",
        "ls": "list ps",
        "render": "build config template",
        "rollback": "undo",
        "status": "describe get rollout",
        "uninstall": "delete destroy remove rm",
        "up": "launch run serve start",
        "verify": "test",
    }.items()
    for word in words.split()
}
# Words without a command for the same purpose, and what to do.
OTHER = {
    "attach": "Run `penstock logs GRAPH --follow` or `penstock status GRAPH --watch`",
    "edit": "Edit the file of the graph; a running `penstock up` applies it",
    "login": "Select the cluster with --kubeconfig and --context; penstock has no login",
    "pull": "Run `penstock up GRAPH` or `penstock apply GRAPH`, which download the model",
    "restart": "Run `penstock down GRAPH`, then `penstock up GRAPH`",
    "version": "Run `penstock --version`",
    "-V": "Run `penstock --version`",
    "-v": "Run `penstock --version`",
}
SUFFIXES = (".yaml", ".yml")


def unknown_command(word: str, rest: Sequence[str], commands: Mapping[str, str]) -> str:
    """What is wrong with ``word`` where a command is expected, and the fix.

    ``rest``: the arguments after it; ``commands``: command → purpose.
    """
    lower = word.lower()
    if fix := OTHER.get(word, OTHER.get(lower, "")):
        return f"unknown command {word!r}. Fix: {fix}."
    if word.startswith("-"):
        near = suggestion(word, ["--help", "--version"])
        return f"unknown option {word}; options come after the command{near}"
    if command := ELSEWHERE.get(lower, ""):
        return f"unknown command {word!r}. Fix: Use `penstock {command}`: {commands[command]}."
    if lower.endswith(SUFFIXES) or Path(word).is_file():
        command, *more = rest if rest and rest[0] in commands else ["up", *rest]
        line = shlex.join(("penstock", command, word, *more))
        return f"{word!r} is a file, and a command is expected. Fix: Run `{line}`."
    return f"unknown command {word!r}{suggestion(word, commands)}"
