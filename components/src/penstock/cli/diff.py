"""`penstock diff GRAPH`: print what an upgrade would change, without changing anything."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.outputs import print_json
from penstock.errors import ClusterError, Problem

EXIT_CHANGED = 1  # as `diff` and `kubectl diff`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser, "graph YAML")
    arguments.add_sets(parser)
    arguments.add_cluster(parser)
    parser.add_argument(
        "--from",
        dest="before",
        metavar="FILE",
        type=Path,
        help="compare with this graph or these manifests instead of the cluster",
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.cluster.api import Api
    from penstock.cluster.change import against_cluster, against_file
    from penstock.graph.load import load_graph

    loaded = load_graph(args.graph, args.sets)
    try:
        target = arguments.target_of(args)
        api = None if args.before else Api.connect(target)
    except ClusterError as error:
        raise ClusterError(*map(_or_with_a_file, error.problems)) from None
    if api is None:
        change = against_file(loaded, target, args.before)
    else:
        change = against_cluster(loaded, target, api)
    if args.json:
        print_json(change.as_dict())
    else:
        print("\n".join(change.lines()))
    return 0 if change.is_empty and not change.failed_write else EXIT_CHANGED


def _or_with_a_file(problem: Problem) -> Problem:
    return replace(problem, fix=f"{problem.fix} To compare with a file, add --from FILE.".lstrip())
