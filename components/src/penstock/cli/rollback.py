"""`penstock rollback GRAPH [REVISION]`: roll back to an earlier revision, and wait."""

from __future__ import annotations

import argparse

from penstock.cli import arguments
from penstock.cli.progress import print_line
from penstock.cli.values import integer_between


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_release(parser)
    parser.add_argument(
        "revision",
        metavar="REVISION",
        nargs="?",
        type=integer_between(1, 10**9),
        help="a number from `penstock history` (default: the last one that was ready and differs "
        "from the current one)",
    )
    arguments.add_yes(parser)
    arguments.add_wait(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.cluster.change import rollback_revision, rollback_transition
    from penstock.cluster.generations import lines
    from penstock.cluster.release import require_release

    target, api = arguments.connected(args)
    arguments.preflight(target, api, "rollback").require(revision=args.revision)
    current = require_release(target).revision
    number = rollback_revision(target, args.revision)
    print(f"{target}: revision {current.number} ({current.status}) → {number}", flush=True)
    if (transition := rollback_transition(target, api, number)) is not None:
        print_line("\n".join(f"  {line}" for line in lines(transition)))
    if not arguments.confirm(args, f"roll back to revision {number}"):
        return 0
    return arguments.rollout_of(args, api, target).roll_back(number)
