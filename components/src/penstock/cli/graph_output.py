"""The graph that `plan` and `tune` write: where it may be written, and its command line."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from penstock.cli.arguments import WRITABLE


def own_command() -> str:
    return shlex.join(["penstock", *sys.argv[1:]])


def check_graph_output(args: argparse.Namespace) -> None:
    """Refuse an output that cannot be written before the replays, not after them."""
    from penstock.errors import GraphError, InputError, Problem, UsageError
    from penstock.graph.load import name_problems

    if args.output == "-" and args.json:
        message = "-o - and --json both write to the standard output"
        fix = "Remove -o -; the JSON has the graph in `graph`."
        raise UsageError(Problem(message=message, fix=fix))
    if args.output in (None, "-"):
        return
    path = Path(args.output)
    if not args.output or path.is_dir() or not path.absolute().parent.is_dir():
        message = f"{args.output!r} cannot be written"
        raise UsageError(Problem(place="-o", message=message, fix=WRITABLE))
    if not os.access(path.absolute().parent, os.W_OK):
        message = f"the folder of {path} is read-only"
        raise UsageError(Problem(place="-o", message=message, fix=WRITABLE))
    if problems := name_problems(args.output):
        raise GraphError(*problems)
    if (path.exists() or path.is_symlink()) and not args.force:
        fix = "Name another file, or add --force to replace it."
        raise InputError(Problem(file=args.output, message="already exists", fix=fix))
