"""A command line of penstock in a message, as a shell reads it: paths may have spaces."""

from __future__ import annotations

import shlex
from pathlib import Path


def command(verb: str, file: Path | str, *options: str) -> str:
    """`penstock VERB FILE OPTIONS`, in backticks."""
    return f"`{shlex.join(['penstock', verb, str(file), *options])}`"


def restart(file: Path | str) -> str:
    """The two commands that stop a graph and start it again."""
    return f"{command('down', file)}, then {command('up', file)}"
