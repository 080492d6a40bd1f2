"""`penstock status GRAPH`: what of it runs, and which workers are registered."""

from __future__ import annotations

import argparse
import json
import sys

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_sets(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.local.control import status
    from penstock.local.table import print_status

    state = status(args.graph, args.sets)
    if args.json:
        json.dump(state, sys.stdout, indent=1)
        print()
    else:
        print_status(state)
    return 0
