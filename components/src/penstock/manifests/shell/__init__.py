"""Resolves shell launches statically to the processes that they end up running.

`lex` and `tree` read a script, `run` follows it, `commands` and `programs` a single command;
`words` and `parameters` expand words to `text` with unknown parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.manifests.deployment import Launch
from penstock.manifests.shell import scope
from penstock.manifests.shell.lex import LexError, references
from penstock.manifests.shell.process import How, candidate, chosen, finished
from penstock.manifests.shell.programs import is_shell, shell_script
from penstock.manifests.shell.text import LimitError, Text, UnknownError

__all__ = ["Context", "UnknownError", "is_shell", "references", "start"]


@dataclass(frozen=True, kw_only=True)
class Context:
    """The environment, files and directory of a container."""

    env: Mapping[str, str] = field(default_factory=dict)
    # Variable → why only the cluster knows its value.
    unknown: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


def start(argv: tuple[str, ...], surroundings: Context) -> tuple[Launch, ...]:
    """The processes that ``argv`` ends up running; empty if a script starts none.

    Raises UnknownError for a script that a shell or penstock cannot read.
    """
    begun = scope.start(surroundings.env, surroundings.unknown)
    begun.files = {path: Text.known(text) for path, text in surroundings.files.items()}
    begun.cwd = Text.known(surroundings.cwd) if surroundings.cwd is not None else None
    fields = [Text.known(argument) for argument in argv]
    if not shell_script(list(argv), dict(surroundings.files)):
        if is_shell(argv):
            begun.note(f"`{' '.join(argv[:3])}`: the script is in the image")
        return (finished(candidate(fields, begun, How.EXEC), through_shell=is_shell(argv)),)
    # Most containers run no script, and these modules are most of the package.
    from penstock.manifests.shell import programs
    from penstock.manifests.shell.run import Run

    run = Run()
    try:
        programs.follow_shell(run, fields, begun)
    except (LexError, LimitError) as error:
        raise UnknownError(str(error)) from None
    except RecursionError:
        raise UnknownError("substitutions are nested too deeply to be read") from None
    return tuple(finished(program, through_shell=True) for program in chosen(run.candidates))
