"""`penstock trace GRAPH [ID]`: list the traced requests, or explain which stage made one slow."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import print_json
from penstock.cli.values import integer_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.tracing.requests import TracedRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help="ID of the response (chatcmpl-…), header x-request-id of the request, or trace ID; "
        "without it, the requests are listed",
    )
    parser.add_argument(
        "-n",
        "--lines",
        type=integer_between(1, 1_000_000),
        default=20,
        metavar="N",
        help="number of requests to list (default: 20)",
    )
    add_switch(parser, "--slowest", "list the slowest requests first, not the newest")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.local.control import require_same_sets
    from penstock.local.state import StateDir
    from penstock.local.tracing import folder, require_traces, unknown_request
    from penstock.tracing.explain import UnknownRequestError, explain
    from penstock.tracing.report import explanation_document, explanation_lines
    from penstock.tracing.requests import load

    state = StateDir(args.graph)
    require_same_sets(state, args.sets)
    require_traces(state)
    loaded = load(folder(state))
    if loaded.unreadable and not args.quiet:
        print(f"skipped damaged messages in {folder(state)}: {loaded.unreadable}", file=sys.stderr)
    if args.id is None:
        return _list(args, loaded.requests)
    try:
        explanation = explain(loaded.requests, args.id)
    except UnknownRequestError:
        raise unknown_request(state, args.id, loaded.requests) from None
    if args.json:
        print_json(explanation_document(explanation))
    else:
        print("\n".join(explanation_lines(explanation)))
    return 0


def _list(args: argparse.Namespace, requests: Sequence[TracedRequest]) -> int:
    from penstock.text.terminal import add_plain_row, columns, console, print_fitted
    from penstock.tracing.report import (
        LIST_HEADINGS,
        LIST_NUMBERS,
        list_rows,
        listed,
        on_mockers,
        request_document,
    )

    rows = listed(requests, args.lines, slowest=args.slowest)
    if args.json:
        print_json([request_document(request) for request in rows])
        return 0
    if not rows:
        print("no request is recorded yet", file=sys.stderr)
        return 0
    table = columns(*LIST_HEADINGS, numbers=LIST_NUMBERS)
    for row in list_rows(rows):
        add_plain_row(table, row)  # a client's ID may contain `[/b]`
    for line in on_mockers(rows):
        print_fitted(line)
    console().print(table)
    return 0
