"""`penstock explain GRAPH [COMPONENT]`: what exactly each component executes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    parser.add_argument("component", metavar="COMPONENT", nargs="?", help="only this one")
    arguments.add_sets(parser)
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.manifests.explain import choose, explain
    from penstock.manifests.source import open_source

    source = open_source(args.graph, args.sets)
    components = choose(source.deployment, args.component)
    if args.json:
        json.dump(
            [dataclasses.asdict(c) for c in components],
            sys.stdout,
            indent=1,
            default=dict,
        )
        print()
        return 0
    print("\n\n".join(explain(component) for component in components))
    return 0
