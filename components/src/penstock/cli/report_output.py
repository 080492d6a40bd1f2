"""`--report FILE.html` of `simulate` and `drill`: checked before the work, which takes minutes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from penstock.cli import arguments


def add_report(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--report", metavar="FILE.html", type=Path, help=what)


def require_report(path: Path | None) -> None:
    """UsageError if the report cannot be written, InputError if it would replace another file."""
    from penstock.errors import InputError, Problem, UsageError
    from penstock.html_mark import HTML_MARK

    if path is None:
        return
    folder = path.absolute().parent
    message = fix = ""
    if path.is_dir():
        message, fix = f"{path} is a folder", "Name a file in it."
    elif not folder.is_dir():
        message = f"there is no folder {path.parent}"
        fix = "Create the folder, or name another file."
    elif not os.access(path if path.exists() else folder, os.W_OK):
        message, fix = f"{path} is read-only", arguments.WRITABLE
    if message:
        raise UsageError(Problem(place="--report", message=message, fix=fix))
    if path.is_file() and not arguments.has_mark(path, HTML_MARK):
        message = "already exists, and is not a report of penstock"
        fix = "Name another file, or remove it first."
        raise InputError(Problem(file=str(path), message=message, fix=fix))
