"""The graph that `top` and `page` show: one that `up` runs, or a release on a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli import arguments

if TYPE_CHECKING:
    from penstock.live.protocols import SnapshotSource


def add_source(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="show the release on a cluster instead of local processes",
    )
    arguments.add_cluster(parser)


def source_of(args: argparse.Namespace, url: str | None = None) -> SnapshotSource:
    """``url``: the endpoint of the release. NotUpError, InputError, ClusterError."""
    if not args.cluster:
        _refuse(args, ("namespace", "release", "kubeconfig", "context"))
        from penstock.live.source import LiveGraph

        return LiveGraph(args.graph, args.sets)
    from penstock.live.cluster.source import ClusterGraph

    arguments.refuse_sets(args)
    return ClusterGraph.connect(arguments.target_of(args), url)


def _refuse(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    """UsageError for options that select a release."""
    from penstock.errors import UsageError

    for name in names:
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} needs --cluster")
