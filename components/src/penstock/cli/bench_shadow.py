"""`penstock bench shadow A B`: compare the responses of two endpoints.

The requests are those of a file, or those of clients.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.cli import arguments, outputs, replaying
from penstock.cli.bench_targets import model_of, running_target
from penstock.cli.command_line import add_switch
from penstock.cli.progress import LINE_INTERVAL_S, Progress, add_progress
from penstock.cli.values import add_count, duration_ms, share
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.bench.shadow.client import ShadowEndpoint
    from penstock.bench.shadow.proxy import Listen
    from penstock.bench.shadow.report import ShadowResult
    from penstock.bench.shadow.run import Pair, Sent, ShadowRun

REPEATS = 100
TIMEOUT_MS = 120_000.0
COPIES = 8
HOSTS = ("127.0.0.1", "localhost")
OF_LISTEN = ("duration", "share")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("A", "B"):
        parser.add_argument(
            f"target_{name.lower()}",
            metavar=name,
            help=f"endpoint {name}: a URL, or a graph that `penstock up` runs on this machine",
        )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--file",
        type=Path,
        metavar="FILE.jsonl",
        help="requests to send: one body of /v1/chat/completions or /v1/completions per line, or "
        "lines of OpenAI's Batch format",
    )
    source.add_argument(
        "--listen",
        type=_address,
        metavar="127.0.0.1:PORT",
        help="listen on this loopback address, forward requests of clients to A, and send copies "
        "to B",
    )
    _add_live_arguments(parser.add_argument_group("with --listen"))
    add_count(
        parser,
        "--requests",
        "send only the first N requests (default: all); with --listen, end after N compared "
        "requests",
    )
    add_count(
        parser,
        "--repeats",
        "send N requests to A twice, to measure how often A differs from itself "
        f"(default: {REPEATS})",
        least=0,
        default=REPEATS,
    )
    add_switch(
        parser,
        "--as-sent",
        "send the requests unchanged (default: temperature 0, seed 0, one choice, streamed)",
    )
    _add_models(parser)
    _add_sending(parser)
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE.jsonl",
        help="write each response, with its text, at once; run the same command again to continue",
    )
    add_switch(
        parser,
        "--show-text",
        "show the text around the first character that differs, in the output and the report",
    )
    outputs.add_report(parser, "write an HTML report, even if the run ends early")
    arguments.add_running_sets(parser)
    arguments.add_json(parser)
    add_progress(parser)


def _add_sending(parser: argparse.ArgumentParser) -> None:
    add_count(
        parser,
        "--concurrency",
        "number of requests at the same time; each goes to A and B in turn (default: 1); with "
        f"--listen, number of copies and repeats at the same time (default: {COPIES})",
        most=1000,
    )
    replaying.add_seed(parser, "the order of A and B, and of the choice of repeats and copies")
    replaying.add_request_timeout(parser, TIMEOUT_MS)


def _add_models(parser: argparse.ArgumentParser) -> None:
    arguments.add_requested_model(parser)
    parser.add_argument(
        "--model-b",
        metavar="MODEL",
        help="model to request from B (default: that of --model, else the only one that B lists)",
    )
    add_switch(parser, "--keep-model", "request the model that each request names")


def _add_live_arguments(group: argparse._ArgumentGroup) -> None:
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


def _address(text: str) -> tuple[str, int]:
    """Host and port. Loopback only: the proxy has no authentication of its own."""
    host, _, port = text.rpartition(":")
    if host not in HOSTS:
        message = f"{text!r} is not on loopback; write 127.0.0.1:PORT"
        raise argparse.ArgumentTypeError(message)
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{port!r} is not a port from 0 to 65535")
    return host, int(port)


def run(args: argparse.Namespace) -> int:
    from penstock.bench.shadow.documents import shadow_document
    from penstock.bench.shadow.report import report_of, require_equal

    _require_fitting(args)
    result = _compare_file(args) if args.file is not None else _compare_live(args)
    report = report_of(result, show_text=args.show_text)
    outputs.print_result(args, report, shadow_document(result))
    files = [args.target_a, args.target_b, args.file]
    facts = {"seed": str(args.seed)}
    outputs.write_report(args, report, files, facts=facts, is_private=args.show_text)
    require_equal(result)
    return 0


def _compare_live(args: argparse.Namespace) -> ShadowResult:
    """PortInUseError, or InputError for the file of `--results`."""
    from penstock.bench.shadow.live import LiveComparison, LiveRun
    from penstock.bench.shadow.proxy import mirror
    from penstock.bench.shadow.report import ShadowResult
    from penstock.bench.shadow.results_file import ResultsFile, header_of
    from penstock.bench.shadow.verdict import verdict_of

    replaying.end_as_interrupted()
    run = LiveRun(
        endpoints=(_endpoint(args, "A"), _endpoint(args, "B")),
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
            file = ResultsFile(args.results, header_of(run, ""), (), _warning_of(progress))
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


def _listen(args: argparse.Namespace) -> Listen:
    from penstock.bench.shadow.proxy import Listen

    host, port = args.listen
    duration_s = args.duration / 1000 if args.duration else None
    return Listen(host=host, port=port, duration_s=duration_s)


def _compare_file(args: argparse.Namespace) -> ShadowResult:
    from penstock.bench.shadow.report import ShadowResult
    from penstock.bench.shadow.requests import read_requests
    from penstock.bench.shadow.run import ShadowRun
    from penstock.bench.shadow.verdict import verdict_of

    file = read_requests(args.file)
    replaying.end_as_interrupted()
    shadow = ShadowRun(
        endpoints=(_endpoint(args, "A"), _endpoint(args, "B")),
        requests=file.requests[: args.requests],
        repeats=args.repeats,
        as_sent=args.as_sent,
        concurrency=args.concurrency or 1,
        timeout_s=args.request_timeout / 1000,
        seed=args.seed,
    )
    sent = _sent(args, shadow, file.digest)
    return ShadowResult(
        run=shadow,
        total=len(shadow.requests),
        pairs=sent.pairs,
        verdict=verdict_of(sent.pairs, as_sent=shadow.as_sent),
        interrupted=sent.interrupted,
    )


def _sent(args: argparse.Namespace, shadow: ShadowRun, digest: str) -> Sent:
    from penstock.bench.shadow.results_file import ResultsFile, header_of
    from penstock.bench.shadow.run import send

    progress = Progress(args, "comparing", line_interval_s=LINE_INTERVAL_S)
    with ExitStack() as opened:
        results = None
        if args.results is not None:
            header = header_of(shadow, digest)
            file = ResultsFile(args.results, header, shadow.requests, _warning_of(progress))
            results = opened.enter_context(file)
        known = results.known if results is not None else []
        done = len(known) + sum(pair.repeat is not None for pair in known)
        total = len(shadow.requests) + len(shadow.repeated())

        def keep(pair: Pair) -> None:
            nonlocal done
            if results is not None:
                results.keep(pair)
            done += 1
            progress("comparing", done, total)

        opened.enter_context(progress.running())
        return send(shadow, known, keep)


def _warning_of(progress: Progress) -> Callable[[str], None]:
    """Prints a warning, also with `-q`."""

    def warn(line: str) -> None:
        progress.hide()
        print(f"penstock bench shadow: warning: {line}", file=sys.stderr, flush=True)

    return warn


def _endpoint(args: argparse.Namespace, name: str) -> ShadowEndpoint:
    """NotUpError for a graph that does not run, NotVerifiedError for a URL that does not serve."""
    from penstock.bench.shadow.client import ShadowEndpoint
    from penstock.verify.preflight import require_endpoint
    from penstock.verify.target import ProbeTarget

    target = args.target_a if name == "A" else args.target_b
    endpoint = ShadowEndpoint(
        name=name, url=running_target(args, target).url.removesuffix("/v1"), model=None
    )
    if "@" in urlsplit(endpoint.url).netloc:  # it would be printed, and sent to clients
        key = "OPENAI_API_KEY" + ("_B, or OPENAI_API_KEY" if name == "B" else "")
        message = f"the URL of {name} contains a user name or a password"
        raise UsageError(message, fix=f"Remove it. Set a key with {key}.")
    requested = (args.model_b or args.model) if name == "B" else args.model
    probe = ProbeTarget(url=endpoint.url, api_key=endpoint.key)
    try:
        require_endpoint(probe)
        is_client = name == "A" and args.listen is not None  # forwarded without a change
        model = None if args.keep_model or is_client else model_of(probe, requested)
        listed = probe.models if is_client else ()
    except UsageError as error:
        option = "--model-b" if name == "B" else "--model"
        raise UsageError(*(replace(problem, place=option) for problem in error.problems)) from None
    finally:
        probe.close()
    return replace(endpoint, model=model, listed=listed)


def _require_fitting(args: argparse.Namespace) -> None:
    if args.keep_model and (args.model or args.model_b):
        raise UsageError("--keep-model cannot be combined with --model", fix="Remove one of them.")
    if args.listen is None:
        arguments.require_with(args, "--listen", OF_LISTEN, "Remove {flag}, or use --listen.")
    else:
        fix = "Remove --model: A gets the model of each request. Use --model-b to set B's."
        arguments.require_with(args, "--file", ["model"], fix)
        arguments.require_with(args, "--file", ["as_sent"], "Remove {flag}, or use --file.")
    outputs.require_report(args.report)
    if args.results is not None:
        outputs.require_named(args.results, "--results")
        outputs.require_different(
            [("--file", args.file), ("--results", args.results), ("--report", args.report)]
        )
        outputs.require_writable(args.results, "--results", in_place=True)
