"""`penstock bench shadow A B --listen ADDRESS`: compare the responses to requests of clients."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.cli.progress import LINE_INTERVAL_S, Progress
from penstock.cli.replay_arguments import duration_ms, share
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.bench.shadow.mirror import Listen
    from penstock.bench.shadow.report import ShadowResult
    from penstock.bench.shadow.run import Endpoints, Pair

COPIES = 8
HOSTS = ("127.0.0.1", "localhost")
OF_FILE = {"model": "--model", "as_sent": "--as-sent"}
OF_LISTEN = {"duration": "--duration", "share": "--share"}


def add_listen(group: argparse._MutuallyExclusiveGroup) -> None:
    group.add_argument(
        "--listen",
        type=_address,
        metavar="127.0.0.1:PORT",
        help="listen on this loopback address, forward requests of clients to A, and send copies "
        "to B",
    )


def add_live_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--duration",
        type=duration_ms,
        metavar="30m",
        help="end after this time (default: at Ctrl-C, or after --requests)",
    )
    group.add_argument(
        "--share",
        type=share,
        metavar="SHARE",
        help="share of the requests that are copied to B (default: 1)",
    )


def require_fitting_live(args: argparse.Namespace) -> None:
    """UsageError for an option that needs `--listen`, or that excludes it."""
    needed, other = (OF_LISTEN, "--listen") if args.listen is None else (OF_FILE, "--file")
    for name, flag in needed.items():
        if getattr(args, name):
            fix = f"Remove {flag}, or use {other}."
            if flag == "--model":
                fix = "Remove --model: A gets the model of each request. Use --model-b to set B's."
            raise UsageError(f"{flag} needs {other}", fix=fix)


def compare_live(args: argparse.Namespace, endpoints: Endpoints) -> ShadowResult:
    """PortInUseError, or InputError for the file of `--results`."""
    from penstock.bench.shadow.live import LiveComparison, LiveRun
    from penstock.bench.shadow.mirror import mirror
    from penstock.bench.shadow.report import ShadowResult
    from penstock.bench.shadow.results_file import ResultsFile, header_of
    from penstock.bench.shadow.verdict import verdict_of

    run = LiveRun(
        endpoints=endpoints,
        repeats=args.repeats,
        as_sent=True,
        concurrency=args.concurrency or COPIES,
        timeout_s=args.request_timeout / 1000,
        seed=args.seed,
        share=args.share or 1.0,
        count=args.requests,
    )
    progress = Progress(args, "waiting for requests", line_interval_s=LINE_INTERVAL_S)
    with ExitStack() as opened:
        results = None
        if args.results is not None:
            file = ResultsFile(args.results, header_of(run, ""), (), warning_of(progress))
            results = opened.enter_context(file)

        def keep(pair: Pair) -> None:
            if results is not None:
                results.keep(pair)
            progress(f"{len(live.pairs)} requests compared")

        def say(line: str) -> None:
            progress.hide()
            if not args.quiet:
                print(line, file=sys.stderr, flush=True)

        known = results.known if results is not None else []
        live = LiveComparison(
            run=run, keep=keep, say=say, pairs={pair.request.id: pair for pair in known}
        )
        with progress.running():
            interrupted = mirror(live, _listen(args))
    pairs = list(live.pairs.values())
    return ShadowResult(
        run=run,
        total=len(known) + live.counts.selected,
        pairs=pairs,
        verdict=verdict_of(pairs, as_sent=True),
        interrupted=interrupted,
        counts=live.counts,
    )


def warning_of(progress: Progress) -> Callable[[str], None]:
    """Prints a warning, also with `-q`."""

    def warn(line: str) -> None:
        progress.hide()
        print(f"penstock bench shadow: warning: {line}", file=sys.stderr, flush=True)

    return warn


def _listen(args: argparse.Namespace) -> Listen:
    from penstock.bench.shadow.mirror import Listen

    host, port = args.listen
    duration_s = args.duration / 1000 if args.duration else None
    return Listen(host=host, port=port, duration_s=duration_s)


def _address(text: str) -> tuple[str, int]:
    """Host and port. Loopback only: the proxy has no authentication of its own."""
    host, _, port = text.rpartition(":")
    if host not in HOSTS:
        message = f"{text!r} is not on loopback; write 127.0.0.1:PORT"
        raise argparse.ArgumentTypeError(message)
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{port!r} is not a port from 0 to 65535")
    return host, int(port)
