"""Runs `penstock` in this process, as starting Python and importing take a second of CPU time."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

from penstock.cli.main import main

ROOT = Path(__file__).parents[2]


def penstock(*arguments: str, folder: Path = ROOT) -> CompletedProcess[str]:
    """The exit code and the output of the command, run in ``folder``."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            code = main(arguments)
        except SystemExit as exited:  # argparse: --help and usage errors
            code = exited.code if isinstance(exited.code, int) else 0
    return CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def output_of(argv: Sequence[str], code: int = 0) -> str:
    """The standard output of the command, which ends with ``code``, run in the current folder."""
    done = penstock(*argv, folder=Path.cwd())
    assert done.returncode == code, done.stderr
    return done.stdout


def error_of(argv: Sequence[str], code: int) -> str:
    """The same for standard error."""
    done = penstock(*argv, folder=Path.cwd())
    assert done.returncode == code, done.stderr
    return done.stderr
