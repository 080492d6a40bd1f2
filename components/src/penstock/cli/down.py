"""`penstock down GRAPH`: drain it and wait until nothing of it runs."""

from __future__ import annotations

import argparse

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_sets(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.local.control import down

    print(down(args.graph, args.sets))
    return 0
