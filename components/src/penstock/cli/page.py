"""`penstock page GRAPH`: a live view of a running graph in the browser, on loopback."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.live_source import add_source, source_of
from penstock.cli.replay_arguments import integer_between

if TYPE_CHECKING:
    from penstock.live.page.serve import PageOptions
    from penstock.live.protocols import SnapshotSource


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument(
        "--url",
        metavar="URL",
        help="with --cluster: base URL of the release's endpoint, with /v1, for the chat "
        "(default: no chat)",
    )
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
    arguments.add_no_install(parser, "page (82 MB)")


def run(args: argparse.Namespace) -> int:
    from penstock.live.page import serve
    from penstock.live.page.request_path import RecordedRequests
    from penstock.local.state import StateDir

    _check(args)
    graph = source_of(args, args.url and args.url.rstrip("/"))
    arguments.require_tool(args, serve)
    recorded = None if args.cluster else RecordedRequests(StateDir(args.graph))
    options = serve.PageOptions(
        graph=args.graph, port=args.port, allow_edit=args.allow_edit, requests=recorded
    )
    asyncio.run(_serve(graph, options))
    return 0


def _check(args: argparse.Namespace) -> None:
    """UsageError or InputError for options that do not fit together."""
    from penstock.errors import Problem, UsageError
    from penstock.verify.urls import require_urls

    if args.url is not None:
        if not args.cluster:
            raise UsageError("--url needs --cluster")
        require_urls([args.url])
    if args.cluster and args.allow_edit:
        message = "the page cannot change a release"
        fix = "Omit --allow-edit, and use `penstock scale GRAPH POOL=N --cluster`."
        raise UsageError(Problem(place="--allow-edit", message=message, fix=fix))


async def _serve(graph: SnapshotSource, options: PageOptions) -> None:
    from penstock.live.page.serve import serve

    try:
        await serve(graph, options, lambda url: print(f"page: {url} (Ctrl-C stops it)", flush=True))
    finally:
        await graph.close()
