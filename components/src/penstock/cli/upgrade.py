"""`penstock upgrade GRAPH --to VERSION`: move a graph to another version of Dynamo."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.errors import GraphError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser, "graph YAML")
    parser.add_argument(
        "--to", metavar="VERSION", required=True, help="version of Dynamo to upgrade to"
    )
    add_switch(parser, "--plan", "print the plan and do not write the file")
    add_switch(
        parser,
        "--cluster",
        "first check that the cluster has all Dynamo CRDs, with the fields that the graph "
        "needs (read-only)",
    )
    parser.add_argument(
        "--crds",
        metavar="FILE",
        type=Path,
        help="first check that the graph CRD of the new version, in this file, has the fields "
        "that the graph needs",
    )
    arguments.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.graph.edit import write_text
    from penstock.graph.text_file import read_text_file
    from penstock.manifests.source import is_manifest
    from penstock.upgrade.crds import connect, require_crds, require_fields
    from penstock.upgrade.plan import plan_upgrade
    from penstock.upgrade.report import lines

    text = read_text_file(args.graph)
    if is_manifest(text):
        raise GraphError(
            "is a DGD manifest; upgrade edits only graphs",
            file=str(args.graph),
            fix="Change its images and flags yourself, and run `penstock check`.",
        )
    upgrade = plan_upgrade(text, args.graph, args.to)
    if (args.crds or args.cluster) and not upgrade.needs_operator:
        option = "--crds" if args.crds else "--cluster"
        raise UsageError(f"the graph has `platform: plain` and needs no CRDs: omit {option}")
    if args.crds:
        require_fields(args.crds, upgrade)
    if args.cluster:
        require_crds(connect(arguments.target_of(args)), upgrade)
    print("\n".join(lines(upgrade)))
    if not args.plan:
        write_text(args.graph, upgrade.after)
        print(f"\nwrote {args.graph}")
    return 0
