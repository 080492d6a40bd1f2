"""`penstock schema`: print the JSON schema of the graph YAML, for editors."""

from __future__ import annotations

import argparse
import json

from penstock.cli import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_generated_output(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.graph.schema import graph_schema

    schema = graph_schema()
    arguments.write_generated(args, json.dumps(schema, indent=2), str(schema["title"]))
    return 0
