"""`penstock upgrade GRAPH --to VERSION`: move a graph to another version of Dynamo."""

from __future__ import annotations

import argparse

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser, "graph YAML")
    parser.add_argument(
        "--to", metavar="VERSION", required=True, help="version of Dynamo to upgrade to"
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print the plan and do not write the file",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="first check that the cluster has all Dynamo CRDs (read-only)",
    )
    arguments.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.errors import GraphError, Problem
    from penstock.graph.edit import write_text
    from penstock.graph.load import read_text_file
    from penstock.manifests.source import is_manifest
    from penstock.upgrade.crds import connect, require_crds
    from penstock.upgrade.plan import plan_upgrade
    from penstock.upgrade.report import lines

    text = read_text_file(args.graph)
    if is_manifest(text):
        raise GraphError(
            Problem(
                file=str(args.graph),
                message="is a DGD manifest; upgrade edits only graphs",
                fix="Change its images and flags yourself, and run `penstock check`.",
            )
        )
    upgrade = plan_upgrade(text, args.graph, args.to)
    if args.cluster and upgrade.needs_operator:
        require_crds(connect(arguments.target_of(args)))
    print("\n".join(lines(upgrade)))
    if not args.plan:
        write_text(args.graph, upgrade.after)
        print(f"\nwrote {args.graph}")
    return 0
