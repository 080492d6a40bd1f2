"""`penstock trace GRAPH [ID]`: list the traced requests, or explain which stage made one slow."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.replay_arguments import integer_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.errors import PenstockError
    from penstock.local.state import StateDir
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
    parser.add_argument(
        "--slowest",
        action="store_true",
        help="list the slowest requests first, not the newest",
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.local.control import require_same_sets
    from penstock.local.state import StateDir
    from penstock.local.tracing import folder
    from penstock.tracing.explain import UnknownRequestError, explain
    from penstock.tracing.load import load
    from penstock.tracing.report import explanation_document, explanation_lines

    state = StateDir(args.graph)
    require_same_sets(state, args.sets)
    _require_traces(state)
    loaded = load(folder(state))
    if loaded.unreadable and not args.quiet:
        print(f"skipped {loaded.unreadable} damaged messages in {folder(state)}", file=sys.stderr)
    if args.id is None:
        return _list(args, loaded.requests)
    try:
        explanation = explain(loaded.requests, args.id)
    except UnknownRequestError:
        raise _unknown(state, args.id, loaded.requests) from None
    if args.json:
        print(json.dumps(explanation_document(explanation), indent=1))
    else:
        print("\n".join(explanation_lines(explanation)))
    return 0


def _list(args: argparse.Namespace, requests: Sequence[TracedRequest]) -> int:
    from penstock.terminal import columns, console
    from penstock.tracing.report import LIST_HEADINGS, list_rows, request_document

    ordered = sorted(requests, key=lambda r: r.total_ms if args.slowest else r.start_ns)
    shown = ordered[::-1][: args.lines]
    if args.json:
        print(json.dumps([request_document(request) for request in shown], indent=1))
        return 0
    if not shown:
        print("no request is recorded yet", file=sys.stderr)
        return 0
    table = columns(*LIST_HEADINGS, numbers=("total", "TTFT", "input", "cached", "output"))
    for row in list_rows(shown):
        table.add_row(*row)
    console().print(table)
    return 0


def _require_traces(state: StateDir) -> None:
    """NotUpError if nothing was recorded: the graph was never up, or ran without traces."""
    from penstock.command_text import command
    from penstock.errors import NotUpError, Problem
    from penstock.local.file_kind import LIST_GRAPHS, not_servable
    from penstock.local.tracing import folder

    if folder(state).is_dir():
        return
    again = command("up", state.source, "--trace")
    if state.is_locked():
        message = "the graph is up without traces"
        fix = f"Run {command('down', state.source)}, then {again}."
    elif state.logs.is_dir():
        message, fix = "the last run of the graph recorded no traces", f"Run {again}."
    elif state.source.exists():
        message, fix = "the graph was never up", f"Run {again}."
        if other := not_servable(state.source):
            raise NotUpError(other)
    else:
        message, fix = "no such file, and no graph of this name was ever up", LIST_GRAPHS
    raise NotUpError(Problem(file=str(state.source), message=message, fix=fix))


def _unknown(state: StateDir, requested: str, requests: Sequence[TracedRequest]) -> PenstockError:
    """For an ID that no recorded request has; names the nearest one."""
    from penstock.command_text import command
    from penstock.errors import Problem, UsageError
    from penstock.nearest import nearest

    known = {r.request_id for r in requests} | {r.client_id for r in requests if r.client_id}
    guess = nearest(requested.removeprefix("chatcmpl-"), known)
    hint = f"Perhaps you meant {guess}. " if guess else ""
    return UsageError(
        Problem(
            file=str(state.source),
            message=f"none of {len(requests)} recorded requests has the ID {requested!r}; a "
            "request is recorded about 2 s after it ends",
            fix=f"{hint}List the IDs with {command('trace', state.source)}.",
        )
    )
