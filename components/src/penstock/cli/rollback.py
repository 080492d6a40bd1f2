"""`penstock rollback GRAPH [REVISION]`: go back, and watch it through."""

from __future__ import annotations

import argparse

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_release(parser)
    parser.add_argument(
        "revision",
        metavar="REVISION",
        nargs="?",
        type=_revision,
        help="as `penstock history` lists them (default: the last one before that Helm applied)",
    )
    arguments.add_yes(parser)
    arguments.add_follow(parser)


def _revision(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is no revision: the first is 1")
    return number


def run(args: argparse.Namespace) -> int:
    from penstock.cluster.api import Api
    from penstock.cluster.release import require
    from penstock.cluster.upgrade import revision_before

    target = arguments.target_of(args)
    api = Api.connect(target)
    now = require(target).revision
    number = revision_before(target, args.revision)
    print(f"{target}: revision {now.number} ({now.status}) → {number}", flush=True)
    if not arguments.confirm(args, f"go back to revision {number}"):
        return 0
    roll = arguments.roll_of(args, api, target)
    return roll.back(number)
