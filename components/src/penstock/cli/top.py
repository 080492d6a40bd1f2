"""`penstock top GRAPH`: a live view of a running graph in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.live_source import add_source, source_of
from penstock.text.terminal import obeys_codes

if TYPE_CHECKING:
    from penstock.live.protocols import SnapshotSource


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help="print one snapshot and exit (the default if stdin or stdout is not a terminal, and "
        "with TERM=dumb)",
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    graph = source_of(args)
    is_terminal = sys.stdin.isatty() and obeys_codes(sys.stdout)
    if args.once or args.json or not is_terminal:
        from penstock.live.once import print_once

        print_once(graph, as_json=args.json)
        return 0
    return asyncio.run(_screen(graph))


async def _screen(graph: SnapshotSource) -> int:
    from penstock.live.top import Top

    app = Top(graph.snapshot)
    try:
        await app.run_async()
    finally:
        await graph.close()
    return app.return_code or 0
