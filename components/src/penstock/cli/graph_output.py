"""The graph that `init` and `plan` write: where, its command line, what it requires."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.arguments import require_absent, require_writable
from penstock.errors import GraphError, UsageError

if TYPE_CHECKING:
    from penstock.plan.request import PlanRequest
    from penstock.plan.space import Candidate


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
    from penstock.text.terminal import fitted

    print("\nbefore you install it on a cluster:")
    for text in prerequisites(request, candidate):
        print(*fitted(f"  {text}", 4), sep="\n")
