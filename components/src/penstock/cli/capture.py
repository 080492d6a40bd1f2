"""`penstock capture SOURCE`: turn logs of requests into a workload trace, which has no text."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.arguments import add_json, given
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import print_result, require_absent, require_writable
from penstock.cli.progress import add_progress
from penstock.cli.replaying import add_seed
from penstock.cli.values import add_count, positive_number
from penstock.errors import InputError, Problem, UsageError
from penstock.text.commands import invocation

if TYPE_CHECKING:
    from penstock.capture.capture import Captured
    from penstock.capture.request_texts import RequestTexts
    from penstock.capture.trace_file import LengthOption, TraceFiles
    from penstock.workload.model import Lengths

NATS_ONLY = ("subject", "stream", "duration_s", "requests")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="+",
        help="log file, compressed or not, folder or pattern of log files, or nats://HOST:PORT",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.jsonl",
        type=Path,
        default=Path("trace.jsonl"),
        help="trace to write; the workload file FILE.yaml names it (default: trace.jsonl)",
    )
    add_switch(parser, "--force", "replace the files if they exist")
    parser.add_argument(
        "--format",
        choices=["dynamo", "envoy"],
        help="format of the files: request trace of Dynamo, or access log of Envoy (default: "
        "detected)",
    )
    add_switch(
        parser,
        "--strict",
        "fail if a record is broken or a clock jumps (default: skip a few, correct the times)",
    )
    add_switch(
        parser,
        "--include-text",
        "also write the chat requests, with their text, to FILE.requests.jsonl, which `bench "
        "shadow --file` reads",
    )
    _add_lengths(parser)
    _add_nats(parser)
    add_json(parser)
    add_progress(parser)


def _add_lengths(parser: argparse.ArgumentParser) -> None:
    lengths = parser.add_argument_group("for logs without token counts")
    for name in ("input", "output"):
        lengths.add_argument(
            f"--{name}-tokens",
            metavar="MEAN[:CV]",
            type=_lengths,
            help=f"mean number of {name} tokens, and coefficient of variation from 0 to 5 "
            "(default: 0), such as 1000:0.5; lengths are sampled from a log-normal distribution",
        )
    add_seed(lengths, "the sampled lengths")


def _add_nats(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("for NATS, until Ctrl-C")
    options.add_argument(
        "--subject", metavar="SUBJECT", help="subject (default: dynamo.request_trace.v1)"
    )
    options.add_argument(
        "--stream",
        metavar="NAME",
        help="read this JetStream stream from its first record (default: new records only)",
    )
    options.add_argument(
        "--duration-s", metavar="S", type=positive_number, help="end after S seconds"
    )
    add_count(options, "--requests", "end after N requests", most=10**9)


def _lengths(text: str) -> Lengths:
    from penstock.capture.trace_file import parse_lengths

    try:
        return parse_lengths(text)
    except ValueError:
        message = f"{text!r} is not a mean, such as 1000, or a mean and a CV up to 5, such as "
        raise argparse.ArgumentTypeError(message + "1000:0.5") from None


def run(args: argparse.Namespace) -> int:
    from penstock.capture.nats_source import shown
    from penstock.capture.request_texts import RequestTexts, no_text
    from penstock.capture.trace_file import LengthOption, TraceFiles

    if args.output.suffix != ".jsonl":
        message = f"{args.output} does not end with .jsonl"
        raise UsageError(message, place="-o", fix=f"Use -o {args.output.with_suffix('.jsonl')}")
    files = TraceFiles(trace=args.output)
    require_writable(files.trace, "-o")
    written = [files.trace, files.workload, files.partial]
    written += [files.requests] if args.include_text else []
    _require_not_source(args, written)
    for path in written:
        require_absent(path, force=args.force)
    lengths = LengthOption(input=args.input_tokens, output=args.output_tokens, seed=args.seed)
    texts = RequestTexts(files.trace.absolute().parent) if args.include_text else None
    with texts or nullcontext():
        captured, problem = _capture(args, files, texts)
        if texts is not None and captured.requests and not texts.known(captured.requests):
            missing = no_text(shown(args.sources))
            if captured.files:  # which can be read again; a live capture cannot
                raise InputError(missing)
            problem = problem or missing
        if captured.requests:
            _finish(args, captured, files, lengths, texts, problem)
    files.partial.unlink(missing_ok=True)
    if problem is None and not captured.requests:
        problem = _nothing(args.sources[0], captured)
    if problem is not None:
        if captured.requests:
            kept = f"wrote {len(captured.requests):,} requests to {files.trace}"
            print(f"the capture is incomplete: {kept}", file=sys.stderr)
        raise InputError(problem)
    return 0


def _require_not_source(args: argparse.Namespace, written: Sequence[Path]) -> None:
    """UsageError, also with --force, if a file to write is one to read."""
    from penstock.capture.capture import find_files
    from penstock.capture.nats_source import is_nats

    read = find_files([source for source in args.sources if not is_nats(source)])
    sources = {os.path.realpath(path) for path in read}
    for path in written:
        if os.path.realpath(path) in sources:
            message, fix = f"{path} is also a SOURCE", "Name another file with -o."
            raise UsageError(message, place="-o", fix=fix)


def _nothing(source: str, captured: Captured) -> Problem:
    from penstock.capture.nats_source import NatsSource

    return Problem(
        file=NatsSource(url=source).shown,
        message=f"the capture received no request ({captured.records:,} records)",
        fix="Send requests during the capture, and check that the frontends use the sink nats.",
    )


def _capture(
    args: argparse.Namespace, files: TraceFiles, texts: RequestTexts | None
) -> tuple[Captured, Problem | None]:
    from penstock.capture.capture import capture_files
    from penstock.capture.nats_source import SUBJECT, NatsSource, capture_nats, is_nats

    unfitting = given(args, NATS_ONLY)
    on_other = texts.add if texts is not None else _ignore
    live = [source for source in args.sources if is_nats(source)]
    if not live:
        if unfitting:
            raise UsageError(f"{', '.join(unfitting)} applies to nats://HOST:PORT, not to files")

        def show(records: int) -> None:
            _note(args, f"{records:,} records read")

        captured = capture_files(
            args.sources,
            file_format=args.format,
            strict=args.strict,
            on_other=on_other,
            on_progress=show,
        )
        return captured, None
    if len(args.sources) > 1:
        raise UsageError("a capture from NATS has one SOURCE: run one capture for each")
    source = NatsSource(
        url=live[0],
        subject=args.subject or SUBJECT,
        stream=args.stream,
        duration_s=args.duration_s,
        requests=args.requests,
    )
    return capture_nats(
        source,
        files.partial,
        notify=lambda text: _note(args, text),
        strict=args.strict,
        on_other=on_other,
    )


def _ignore(_: bytes) -> None:
    """Without --include-text, nothing of such a record is decoded."""


def _note(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(text, file=sys.stderr, flush=True)


def _finish(
    args: argparse.Namespace,
    captured: Captured,
    files: TraceFiles,
    option: LengthOption,
    texts: RequestTexts | None,
    problem: Problem | None,
) -> None:
    from penstock.capture.documents import capture_document
    from penstock.capture.report import report_of, warnings_of
    from penstock.capture.request_texts import text_warnings
    from penstock.capture.trace_file import with_lengths
    from penstock.local.graphs import are_mockers

    requests = with_lengths(captured, option)
    warnings = warnings_of(captured, requests, files.write(requests))
    known = texts.known(requests) if texts is not None else 0
    if texts is not None and known:
        texts.write(files.requests, requests)
        warnings += text_warnings(files.requests, known, len(requests))
    for text in warnings:
        print(f"penstock capture: warning: {text}", file=sys.stderr)
    is_mocked = are_mockers({worker for request in requests for worker in request.workers})
    report = report_of(files.trace, captured, requests, engine_is_substitute=is_mocked)
    document = capture_document(
        captured,
        requests,
        files,
        warnings,
        engine_is_substitute=is_mocked,
        with_text=known > 0,
        error=problem,
    )
    print_result(args, report, document)
    if args.json:
        return
    names = [str(path) for path in (files.trace, files.workload)]
    names += [str(files.requests)] if known else []
    print(f"\nwrote {', '.join(names[:-1])} and {names[-1]}")
    print(f"{invocation()} simulate GRAPH --workload {files.workload}")
