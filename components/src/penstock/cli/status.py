"""`penstock status GRAPH`: what of it runs, here or, with `--cluster`, as a release."""

from __future__ import annotations

import argparse
import json
import sys

from penstock.cli import arguments
from penstock.errors import RolloutError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_sets(parser)
    arguments.add_json(parser)
    parser.add_argument(
        "--cluster", action="store_true", help="the release on a cluster, not what is up here"
    )
    parser.add_argument(
        "--watch", action="store_true", help="with --cluster: look again every two seconds"
    )
    arguments.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    if args.cluster:
        arguments.refuse_sets(args)
        return _of_release(args)
    if args.watch:
        raise UsageError("--watch is of --cluster; `penstock up` shows what is up here")
    from penstock.local.control import status
    from penstock.local.status_table import print_status

    graph = status(args.graph, args.sets)
    if args.json:
        json.dump(graph.as_dict(), sys.stdout, indent=1)
        print()
    else:
        print_status(graph)
    return 0


def _of_release(args: argparse.Namespace) -> int:
    """Exit 16 where it is not ready."""
    from penstock.cluster.api import Api
    from penstock.cluster.status import StatusReader, as_dict, as_text, watch

    if args.watch and args.json:
        raise UsageError("--watch is for people, --json for programs: take one")
    target = arguments.target_of(args)
    looker = StatusReader(Api.connect(target), target)
    if args.watch:
        return watch(looker)
    status = looker.look()
    print(json.dumps(as_dict(status), indent=1) if args.json else as_text(status))
    return 0 if status.rollout.is_done else RolloutError.exit_code
