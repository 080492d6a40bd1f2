"""Shell launches resolved statically to the processes they end up running; nothing is executed.

`text` is a value with unknown parts, `lex`/`braces`/`words`/`parameters` expand words, `syntax` is
tree-sitter's tree, `run` follows statements, `commands`/`builtins`/`programs` a single one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.manifests.shell import commands, programs, scope
from penstock.manifests.shell.flow import Exit
from penstock.manifests.shell.lex import references
from penstock.manifests.shell.process import Candidate, How, Process, candidate, chosen, finished
from penstock.manifests.shell.run import Run
from penstock.manifests.shell.text import Text, UnknownError

__all__ = ["Process", "Surroundings", "UnknownError", "is_shell", "references", "start"]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a process finds. ``unknown``: variable → why only the cluster knows its value."""

    env: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


def is_shell(argv: tuple[str, ...]) -> bool:
    return programs.is_shell(list(argv))


def start(argv: tuple[str, ...], surroundings: Surroundings) -> tuple[Process, ...]:
    """The processes that ``argv`` ends up running; empty where a script starts none.

    Raises UnknownError where none is found in a script that could not be read to its end.
    """
    begun = scope.start(surroundings.env, surroundings.unknown)
    begun.files = {path: Text.known(text) for path, text in surroundings.files.items()}
    begun.cwd = Text.known(surroundings.cwd) if surroundings.cwd is not None else None
    run = Run()
    fields = [Text.known(argument) for argument in argv]
    if not programs.shell_script(list(argv), dict(surroundings.files)):
        if is_shell(argv):
            begun.note(f"`{' '.join(argv[:3])}`: what the script starts lies in the image")
        found: list[Candidate] = [candidate(fields, begun, How.EXEC)]
        return tuple(finished(item, through_shell=is_shell(argv)) for item in found)
    with contextlib.suppress(Exit, UnknownError):
        programs.follow_shell(run, fields, begun)
    if run.doubts and not run.candidates:
        raise UnknownError(run.doubts[0])
    for doubt in run.doubts:
        commands.add_note(run.candidates, 0, doubt)
    return tuple(finished(item, through_shell=True) for item in chosen(run.candidates))
