"""What a command writes: files of `-o` and `--report`, checked before work that takes minutes."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.command_line import add_switch
from penstock.errors import GraphError, InputError, UsageError

if TYPE_CHECKING:
    from penstock.plan.request import PlanRequest
    from penstock.plan.space import Candidate
    from penstock.reports.json_document import Document
    from penstock.reports.model import Report

WRITABLE = "Name a file in an existing folder in which you may write."
MARKED_BYTES = 500  # the beginning of a file, with the mark of the command that wrote it


def add_output(parser: argparse.ArgumentParser, default: str | None = "-") -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default=default,
        help=f"write to FILE (default: {'standard output' if default == '-' else 'no file'})",
    )


def add_force(parser: argparse.ArgumentParser, what: str) -> None:
    add_switch(parser, "--force", f"replace FILE if {what}")


def add_generated_output(parser: argparse.ArgumentParser) -> None:
    """`-o` of a command whose own output it replaces without a question."""
    add_output(parser)
    add_force(parser, "penstock did not generate it")


def write_generated(args: argparse.Namespace, text: str, mark: str) -> None:
    """`write_output`, but InputError for a file with other content, unless --force is given.

    ``mark``: what stands at the beginning of every output of the command.
    """
    path = Path(args.output)
    if args.output != "-" and not args.force and is_foreign(path, mark):
        message = "already exists, and penstock did not generate it"
        fix = "Name another file, or pass --force to replace this one."
        raise InputError(message, file=args.output, fix=fix)
    write_output(text, args.output)


def is_foreign(path: Path, *marks: str) -> bool:
    """Whether replacing the path loses something: a file with content that begins with none of the
    marks, or a dangling symbolic link."""
    if path.is_symlink() and not path.exists():
        return True
    if not path.is_file():
        return False  # folders, devices and FIFOs are checked where the file is written
    try:
        with path.open("rb") as file:
            start = file.read(MARKED_BYTES)
    except OSError:
        return True
    return bool(start) and not any(mark.encode() in start for mark in marks)


def require_writable(path: Path, option: str, *, in_place: bool = False) -> None:
    """UsageError, before work that takes minutes, if the file of an option cannot be written.

    ``in_place``: an existing file is overwritten, not replaced, so its folder does not matter.
    """
    folder = path.absolute().parent
    message = fix = ""
    if path.is_dir():
        message, fix = f"{path} is a folder", "Name a file in it."
    elif not folder.is_dir():
        message = f"there is no folder {path.parent}"
        fix = "Create the folder, or name another file."
    elif in_place and path.exists():
        if not os.access(path, os.W_OK):
            message, fix = f"{path} is read-only", WRITABLE
    elif not os.access(folder, os.W_OK):
        message, fix = f"the folder of {path} is read-only", WRITABLE
    if message:
        raise UsageError(message, place=option, fix=fix)


def require_absent(path: Path, *, force: bool) -> None:
    """InputError for a file that exists, unless it may be replaced."""
    if (path.exists() or path.is_symlink()) and not force:
        fix = "Name another file, or add --force to replace it."
        raise InputError("already exists", file=str(path), fix=fix)


def write_output(text: str, target: str) -> None:
    """Print, or write the file atomically."""
    if target == "-":
        print(text, end="" if text.endswith("\n") else "\n")
        return
    from penstock.files import write_atomically

    path = Path(target)
    try:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise IsADirectoryError(0, "not a regular file")
        write_atomically(path, text)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", file=target or "-o", fix=WRITABLE
        ) from None


def own_command() -> str:
    return shlex.join(["penstock", *sys.argv[1:]])


def check_graph_output(args: argparse.Namespace) -> None:
    """Refuse an output that cannot be written before the replays, not after them."""
    from penstock.graph.load import name_problems

    if args.output == "-" and args.json:
        message = "-o - and --json both write to the standard output"
        raise UsageError(message, fix="Remove -o -; the JSON has the graph in `graph`.")
    if args.output in (None, "-"):
        return
    path = Path(args.output)
    require_writable(path, "-o")
    if problems := name_problems(args.output):
        raise GraphError(*problems)
    require_absent(path, force=args.force)


def print_prerequisites(request: PlanRequest, candidate: Candidate) -> None:
    """Print what must be set in a written graph before it is installed."""
    from penstock.plan.graph_text import prerequisites
    from penstock.text.terminal import print_fitted

    print("\nbefore you install it on a cluster:")
    for text in prerequisites(request, candidate):
        print_fitted(f"  {text}", 4)


def add_report(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--report", metavar="FILE.html", type=Path, help=what)


def print_result(args: argparse.Namespace, report: Report, document: Document) -> None:
    """The report as text, or the document with `--json`."""
    from penstock.reports.text import print_report

    if args.json:
        print(document.as_json())
    else:
        print_report(report)


def print_json(document: object) -> None:
    """Mappings of any type are objects."""
    print(json.dumps(document, indent=1, default=dict))


def require_report(path: Path | None, *, force: bool | None = None) -> None:
    """UsageError if the report cannot be written, InputError if it would replace another file.

    ``force``: of a command that replaces no file without `--force`.
    """
    if path is None:
        return
    from penstock.reports.html import HTML_MARK

    require_named(path, "--report")
    require_writable(path, "--report", in_place=True)
    if force is None:
        require_own(path, [HTML_MARK], "a report of penstock")
    else:
        require_absent(path, force=force)


def require_own(path: Path, marks: Sequence[str], what: str) -> None:
    """InputError if the output would replace a file that has none of the ``marks``."""
    if is_foreign(path, *marks):
        fix = "Name another file, or remove it first."
        raise InputError(f"already exists, and is not {what}", file=str(path), fix=fix)


def require_named(path: Path, option: str) -> None:
    """UsageError for the standard output."""
    if path == Path("-"):
        message = "writes a file, not the standard output"
        raise UsageError(message, place=option, fix="Name a file.")


def require_different(files: Iterable[tuple[str, Path | None]]) -> None:
    """UsageError if two options name one file."""
    known: dict[Path, str] = {}
    for option, path in files:
        if path is None:
            continue
        if (real := path.resolve()) in known:
            message = f"{path} is also the file of {known[real]}"
            raise UsageError(message, place=option, fix="Name another file.")
        known[real] = option


def write_report(
    args: argparse.Namespace,
    report: Report,
    files: Iterable[Path | str | None],
    *,
    versions: Mapping[str, str] | None = None,
    facts: Mapping[str, str] | None = None,
    is_private: bool = False,
) -> None:
    """The HTML report, if `--report` requests it. ``files``: what it was made from, among which are
    addresses and names of shipped workloads; ``is_private``: only its owner can read it."""
    if args.report is None:
        return
    from penstock.reports import html
    from penstock.reports.provenance import provenance

    paths = [Path(file) for file in files if file]
    about = provenance(own_command(), files=paths, versions=versions or {}, facts=facts or {})
    html.write_report(args.report, report, about, is_private=is_private)


def write_replay_report(
    args: argparse.Namespace, report: Report, graphs: Sequence[Path], seeds: int
) -> None:
    """`write_report` about replays of the workload in ``args``. ``seeds``: of each graph."""
    if args.report is None:
        return
    from penstock.reports.provenance import installed
    from penstock.simulate.replay import require_environment

    write_report(
        args,
        report,
        [*graphs, args.workload, args.trace],
        versions=installed(require_environment(), "aisimulate", "ai-dynamo-runtime"),
        facts={"seeds": "0" if seeds == 1 else f"0 to {seeds - 1}"},
    )
