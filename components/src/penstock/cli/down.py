"""`penstock down GRAPH`: drain a running graph and wait until it has stopped."""

from __future__ import annotations

import argparse

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.local.control import down

    print(down(args.graph, args.sets))
    return 0
