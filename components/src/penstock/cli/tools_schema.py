"""`penstock tools schema`: the JSON schema of the graph YAML, or of the output of a command."""

from __future__ import annotations

import argparse
import json

from penstock.cli import outputs

WITH_SCHEMA = ("bench", "capture", "drill", "plan", "simulate", "verify")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command",
        choices=WITH_SCHEMA,
        metavar="COMMAND",
        help="print the schema of what COMMAND prints with --json (bench, capture, drill, plan, "
        "simulate or verify; default: the schema of the graph YAML)",
    )
    outputs.add_generated_output(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.graph.schema import graph_schema
    from penstock.output_schemas import output_schema

    schema = output_schema(args.command) if args.command else graph_schema()
    outputs.write_generated(args, json.dumps(schema, indent=2), str(schema["title"]))
    return 0
