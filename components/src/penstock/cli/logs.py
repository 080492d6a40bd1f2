"""`penstock logs GRAPH [NAME]`: print the logs of a graph's processes, also after `down`, or with
`--cluster` those of its pods."""

from __future__ import annotations

import argparse

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.values import add_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="print only a component (decode), one process (decode.0) or one pod",
    )
    add_count(
        parser,
        "--lines",
        "lines of each log to print (default: 50)",
        least=0,
        most=10**9,
        default=50,
    )
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")
    add_switch(
        parser, "--cluster", "print the logs of a release on a cluster instead of local processes"
    )
    add_switch(
        parser,
        "--previous",
        "with --cluster: print the log before the last restart of each container",
    )
    arguments.add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    if args.cluster:
        return _show_pods(args)
    arguments.require_with(
        args, "--cluster (--lines sets the number of lines)", [*arguments.CLUSTER, "previous"], ""
    )
    from penstock.local.control import require_same_sets
    from penstock.local.logs import show_logs
    from penstock.local.state import StateDir

    state = StateDir(args.graph)
    require_same_sets(state, args.sets)
    show_logs(state, args.name, args.lines, args.follow)
    return 0


def _show_pods(args: argparse.Namespace) -> int:
    from penstock.cluster.pods import PodLogs

    target, api = arguments.connected(args)
    logs = PodLogs(api=api, target=target, name=args.name or "", previous=args.previous)
    logs.show(args.lines)
    if args.follow:
        logs.follow(arguments.clock())
    return 0
