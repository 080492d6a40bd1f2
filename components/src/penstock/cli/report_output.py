"""`--report FILE.html`: checked before the work, which takes minutes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.errors import InputError, UsageError

if TYPE_CHECKING:
    from penstock.reports.json_document import Document
    from penstock.reports.model import Report


def add_report(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--report", metavar="FILE.html", type=Path, help=what)


def print_result(args: argparse.Namespace, report: Report, document: Document) -> None:
    """The report as text, or the document with `--json`."""
    from penstock.reports.text import print_report

    if args.json:
        print(document.as_json())
    else:
        print_report(report)


def require_report(path: Path | None) -> None:
    """UsageError if the report cannot be written, InputError if it would replace another file."""
    if path is None:
        return

    from penstock.reports.html import HTML_MARK

    require_named(path, "--report")
    arguments.require_writable(path, "--report", in_place=True)
    require_own(path, [HTML_MARK], "a report of penstock")


def require_own(path: Path, marks: Sequence[str], what: str) -> None:
    """InputError if the output would replace a file that has none of the ``marks``."""
    if arguments.is_foreign(path, *marks):
        message = f"already exists, and is not {what}"
        raise InputError(message, file=str(path), fix="Name another file, or remove it first.")


def require_new_report(path: Path | None, *, force: bool) -> None:
    """As `require_report`, for a command that replaces no file without `--force`."""
    if path is not None:
        require_named(path, "--report")
        arguments.require_writable(path, "--report", in_place=True)
        arguments.require_absent(path, force=force)


def require_named(path: Path, option: str) -> None:
    """UsageError for the standard output."""
    if path == Path("-"):
        raise UsageError("writes a file, not the standard output", place=option, fix="Name a file.")


def workload_files(args: argparse.Namespace) -> list[Path]:
    """The named files of the workload, for a report; some may not exist, because the name of a
    shipped workload is no file."""
    return [Path(name) for name in (args.workload, args.trace) if name]


def replay_provenance(
    args: argparse.Namespace, graphs: Sequence[Path], seeds: int
) -> list[tuple[str, str]]:
    """Of a report about replays of the workload in ``args``. ``seeds``: of each graph."""
    from penstock.cli.graph_output import own_command
    from penstock.reports.provenance import installed, provenance
    from penstock.simulate.replay import require_environment

    return provenance(
        own_command(),
        files=[*graphs, *workload_files(args)],
        versions=installed(require_environment(), "aisimulate", "ai-dynamo-runtime"),
        facts={"seeds": "0" if seeds == 1 else f"0 to {seeds - 1}"},
    )
