"""What to use instead of a word that is not a command of penstock. `cli/main.py` calls it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.cli.command_line import suggestion

# Words of Helm, kubectl, Docker, Ollama and others, and the command for the same purpose.
ELSEWHERE = {
    "build": "render",
    "create": "init",
    "config": "render",
    "delete": "uninstall",
    "deploy": "apply",
    "describe": "status",
    "destroy": "uninstall",
    "get": "status",
    "info": "explain",
    "inspect": "explain",
    "install": "apply",
    "kill": "down",
    "launch": "up",
    "lint": "check",
    "list": "ls",
    "new": "init",
    "ps": "ls",
    "remove": "uninstall",
    "rm": "uninstall",
    "rollout": "status",
    "run": "up",
    "serve": "up",
    "show": "explain",
    "start": "up",
    "stop": "down",
    "template": "render",
    "test": "verify",
    "undo": "rollback",
    "update": "apply",
    "validate": "check",
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
