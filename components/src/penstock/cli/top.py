"""`penstock top GRAPH`: a live view of a running graph in the terminal or the browser.

The graph is one that `up` runs, or a release on a cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.values import integer_between
from penstock.errors import UsageError
from penstock.text.terminal import obeys_codes

if TYPE_CHECKING:
    from penstock.live.model import SnapshotSource
    from penstock.live.page.serve import PageOptions

OF_WEB = ("url", "port", "allow_edit", "no_install")
OF_TERMINAL = ("once", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    add_switch(parser, "--web", "serve the view on loopback, for a browser")
    add_switch(
        parser,
        "--once",
        "print one snapshot and exit (the default if stdin or stdout is not a terminal, and "
        "with TERM=dumb)",
    )
    arguments.add_json(parser)
    arguments.add_running_sets(parser)
    add_switch(parser, "--cluster", "show the release on a cluster instead of local processes")
    arguments.add_cluster(parser)
    _add_web(parser.add_argument_group("with --web"))


def _add_web(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--url",
        metavar="URL",
        help="with --cluster: base URL of the release's endpoint, with /v1, for the chat "
        "(default: no chat)",
    )
    group.add_argument(
        "--port",
        type=integer_between(0, 65535),
        metavar="PORT",
        help="port of the page (default: any free port)",
    )
    add_switch(
        group,
        "--allow-edit",
        "let the page change the replicas in the graph file, as `penstock scale` does",
    )
    arguments.add_no_install(group, "page (82 MB)")


def run(args: argparse.Namespace) -> int:
    _require_fitting(args)
    graph = source_of(args, args.url and args.url.rstrip("/"))
    if args.web:
        _serve_page(args, graph)
        return 0
    is_terminal = sys.stdin.isatty() and obeys_codes(sys.stdout)
    if args.once or args.json or not is_terminal:
        from penstock.live.text import print_once

        print_once(graph, as_json=args.json)
        return 0
    return asyncio.run(_screen(graph))


def _require_fitting(args: argparse.Namespace) -> None:
    """UsageError or InputError for options that do not fit together."""
    from penstock.verify.urls import require_urls

    if not args.web:
        arguments.require_with(args, "--web", OF_WEB)
    elif excluded := arguments.given(args, OF_TERMINAL):
        raise UsageError(f"{next(iter(excluded))} cannot be combined with --web")
    if not args.cluster:
        arguments.require_with(args, "--cluster", ["url", *arguments.CLUSTER])
    if args.url is not None:
        require_urls([args.url])
    if args.cluster and args.allow_edit:
        message = "the page cannot change a release"
        fix = "Omit --allow-edit, and use `penstock scale GRAPH POOL=N --cluster`."
        raise UsageError(message, place="--allow-edit", fix=fix)


def source_of(args: argparse.Namespace, url: str | None = None) -> SnapshotSource:
    """``url``: the endpoint of the release. NotUpError, InputError, ClusterError."""
    if args.cluster:
        from penstock.live.cluster.source import ClusterGraph

        arguments.refuse_sets(args)
        return ClusterGraph(arguments.target_of(args), url)
    from penstock.live.source import LiveGraph

    return LiveGraph(args.graph, args.sets)


async def _screen(graph: SnapshotSource) -> int:
    from penstock.live.top import Top

    app = Top(graph.snapshot)
    try:
        await app.run_async()
    finally:
        await graph.close()
    return app.return_code or 0


def _serve_page(args: argparse.Namespace, graph: SnapshotSource) -> None:
    from penstock.live.page import serve
    from penstock.live.page.view import RecordedRequests
    from penstock.local.state import StateDir

    arguments.require_tool(args, serve)
    recorded = None if args.cluster else RecordedRequests(StateDir(args.graph))
    options = serve.PageOptions(
        graph=args.graph, port=args.port or 0, allow_edit=args.allow_edit, requests=recorded
    )
    asyncio.run(_serve(graph, options))


async def _serve(graph: SnapshotSource, options: PageOptions) -> None:
    from penstock.live.page.serve import serve

    try:
        await serve(graph, options, lambda url: print(f"page: {url} (Ctrl-C stops it)", flush=True))
    finally:
        await graph.close()
