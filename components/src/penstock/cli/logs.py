"""`penstock logs GRAPH [NAME]`: print the logs of a graph's processes, also after `down`."""

from __future__ import annotations

import argparse

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="print only a component (decode) or one process (decode.0)",
    )
    parser.add_argument(
        "-n",
        "--lines",
        type=_count,
        default=50,
        metavar="N",
        help="lines of each log to print (default: 50)",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from penstock.local.control import require_same_sets
    from penstock.local.logs import show_logs
    from penstock.local.state import StateDir

    state = StateDir(args.graph)
    require_same_sets(state, args.sets)
    show_logs(state, args.name, args.lines, args.follow)
    return 0
