"""`penstock page GRAPH`: a live view of a running graph in the browser, on loopback."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.replay_arguments import integer_between

if TYPE_CHECKING:
    from penstock.live.page.serve import PageOptions
    from penstock.live.source import LiveGraph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_running_sets(parser)
    parser.add_argument(
        "--port",
        type=integer_between(0, 65535),
        default=0,
        help="port of the page on loopback (default: any free port)",
    )
    parser.add_argument(
        "--allow-edit",
        action="store_true",
        help="let the page change the replicas in the graph file, as `penstock scale` does",
    )


def run(args: argparse.Namespace) -> int:
    from penstock.live.page.serve import PageOptions, require_environment
    from penstock.live.source import LiveGraph

    require_environment()
    graph = LiveGraph(args.graph, args.sets)
    options = PageOptions(graph=args.graph, port=args.port, allow_edit=args.allow_edit)
    asyncio.run(_serve(graph, options))
    return 0


async def _serve(graph: LiveGraph, options: PageOptions) -> None:
    from penstock.live.page.serve import serve

    try:
        await serve(graph, options, lambda url: print(f"page: {url} (Ctrl-C stops it)", flush=True))
    finally:
        await graph.close()
