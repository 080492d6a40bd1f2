"""`penstock drill GRAPH`: inject faults under load, and count what clients lose."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

from penstock.cli import arguments
from penstock.errors import DrillError, UsageError

DEFAULT_COUNT = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "graph",
        metavar="GRAPH",
        type=Path,
        help="graph YAML; the drill starts its own copy and does not touch a running graph",
    )
    parser.add_argument(
        "--faults",
        metavar="KIND,…",
        default="default",
        help="comma-separated kinds of faults (default: all): kill, term, stop-short, stop-long, "
        "suspend-all, remove-discovery, scale, edit-twice, invalid-edit",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--count", type=_positive, metavar="N", help=f"number of faults (default: {DEFAULT_COUNT})"
    )
    length.add_argument(
        "--minutes", type=_positive, metavar="M", help="inject faults for M minutes"
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="seed of the order of the faults (default: random)"
    )
    parser.add_argument(
        "--streams",
        type=_positive,
        default=32,
        metavar="N",
        help="number of concurrent requests (default: 32)",
    )
    parser.add_argument(
        "--stall-s",
        type=_positive,
        default=5,
        metavar="S",
        help="report a stream as stalled if nothing arrives for S seconds (default: 5)",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="compare responses with a run without faults, for prompts whose output is repeatable "
        "(vLLM on a CPU)",
    )
    parser.add_argument(
        "--engine", choices=["mocker"], help="run mockers instead of the graph's engine"
    )
    arguments.add_sets(parser)
    parser.add_argument("--report", metavar="FILE", type=Path, help="write an HTML report to FILE")
    arguments.add_json(parser)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from penstock.drill.report import as_json, page, print_result
    from penstock.drill.run import DrillOptions, run_drill
    from penstock.graph.load import load_graph

    load_graph(args.graph, args.sets)  # its errors, with the names that the user knows
    _require_writable(args.report)
    # Stop what the drill has started, as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    options = DrillOptions(
        kinds=_kinds(args.faults),
        count=None if args.minutes else args.count or DEFAULT_COUNT,
        minutes=args.minutes,
        seed=random.randrange(10**6) if args.seed is None else args.seed,
        streams=args.streams,
        stall_s=args.stall_s,
        exact=args.exact,
        up_arguments=_up_arguments(args),
    )
    with tempfile.TemporaryDirectory(prefix="penstock-drill-") as folder:
        result = run_drill(args.graph, options, Path(folder), _say)
    if args.json:
        print(as_json(args.graph, result))
    else:
        print_result(args.graph, result)
    if args.report is not None:
        args.report.write_text(page(args.graph, result), "utf-8")
    if not result.evaluation.passes:
        raise DrillError("the drill failed: see the failures above")
    return 0


def _require_writable(report: Path | None) -> None:
    """UsageError now, and not when the drill is over."""
    if report is None:
        return
    try:
        report.open("a").close()
    except OSError as error:
        raise UsageError(f"--report {report}: {error.strerror}") from None


def _kinds(text: str) -> tuple[str, ...]:
    from penstock.drill.faults import KINDS
    from penstock.strict_yaml.problems import did_you_mean

    if text == "default":
        return tuple(KINDS)
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise UsageError(
            *(
                f"--faults {name}: no such fault. "
                f"{did_you_mean(name, KINDS) or 'Known: ' + ', '.join(KINDS)}"
                for name in unknown
            )
        )
    return tuple(dict.fromkeys(names))


def _up_arguments(args: argparse.Namespace) -> tuple[str, ...]:
    given = ["--engine", args.engine] if args.engine else []
    for expression in args.sets:
        given += ["--set", expression]
    return tuple(given)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
