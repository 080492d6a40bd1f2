"""`penstock down GRAPH`: drain a running graph and wait until it has stopped."""

from __future__ import annotations

import argparse

from penstock.cli import arguments
from penstock.cli.progress import Progress, add_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)
    add_progress(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.local.control import down

    progress = Progress(args, f"draining {args.graph}")
    with progress.running():
        done = down(args.graph, args.sets)
    print(done)
    return 0
