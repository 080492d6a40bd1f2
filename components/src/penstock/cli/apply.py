"""`penstock apply GRAPH`: check, say what would change, ask, write, and watch it through."""

from __future__ import annotations

import argparse

from penstock.cli import arguments

CREDENTIAL_IN_PLAIN = "PS710"  # Helm keeps the values of every revision on the cluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser, "graph YAML")
    arguments.add_sets(parser)
    arguments.add_cluster(parser)
    arguments.add_yes(parser)
    arguments.add_follow(parser)
    parser.add_argument(
        "--rollback-on-failure",
        action="store_true",
        help="go back to the revision before, if it does not become ready",
    )
    parser.add_argument(
        "--skip-check",
        action="store_true",
        help="write although `penstock check` finds errors",
    )


def run(args: argparse.Namespace) -> int:
    from penstock.checks.run import require_sound
    from penstock.cluster.api import Api
    from penstock.cluster.change import against_cluster
    from penstock.errors import GraphError, Problem
    from penstock.manifests.source import open_source

    target = arguments.target_of(args)
    source = open_source(args.graph, args.sets, target.namespace)
    if source.loaded is None:
        raise GraphError(
            Problem(
                file=str(args.graph),
                message="is a DGD manifest, and apply writes a graph as a Helm release",
                fix="kubectl apply --server-side -f it",
            )
        )
    if not args.skip_check:
        for line in require_sound(source, refused=[CREDENTIAL_IN_PLAIN]):
            print(line)
    api = Api.connect(target)
    planned = against_cluster(source.loaded, target, api)
    arguments.say("\n".join(planned.lines()))
    roll = arguments.roll_of(args, api, target)
    if planned.is_written:
        return roll.follow(rolls_back=args.rollback_on_failure)
    planned.require_possible()
    if not arguments.confirm(args, f"apply to {target}"):
        return 0
    return roll.upgrade(planned, rolls_back=args.rollback_on_failure)
