"""`penstock schema`: print the JSON schema of the graph YAML, for editors."""

from __future__ import annotations

import argparse
import json

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.graph.schema import graph_schema

    arguments.write_output(json.dumps(graph_schema(), indent=2), args.output)
    return 0
