"""`penstock simulate GRAPH… --workload W`: figures of a workload, without a GPU."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from penstock.cli import arguments

if TYPE_CHECKING:
    from penstock.simulate.replayable import Replayable
    from penstock.simulate.study import Held, Study

NOTE_S = 10.0  # between two lines of progress where nobody looks at a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graphs", metavar="GRAPH", type=Path, nargs="+", help="graphs to compare")
    parser.add_argument(
        "--workload",
        required=True,
        metavar="NAME|FILE",
        help="a workload's file, or short-chat, document, long-context, agentic, conversation",
    )
    parser.add_argument("--trace", metavar="FILE", type=Path, help="recorded requests of it")
    parser.add_argument(
        "--load", type=_factor, default=1.0, metavar="X", help="requests X times as fast"
    )
    parser.add_argument(
        "--until-slo-breaks", action="store_true", help="find the load that each graph holds"
    )
    parser.add_argument("--ttft", type=duration_ms, metavar="500ms", help="SLO: first token")
    parser.add_argument("--itl", type=duration_ms, metavar="20ms", help="SLO: between tokens")
    parser.add_argument("--e2e", type=duration_ms, metavar="30s", help="SLO: last token")
    parser.add_argument(
        "--attain",
        type=_share,
        default=0.95,
        metavar="SHARE",
        help="share of requests within the SLO for a load to be held (default: 0.95)",
    )
    parser.add_argument("--gpu-hour", type=_factor, metavar="PRICE", help="of one GPU for an hour")
    parser.add_argument(
        "--acceptance",
        type=_rates,
        metavar="0.8,0.6,…",
        help="chance of each draft token of a speculating engine",
    )
    parser.add_argument(
        "--seeds",
        type=_count,
        metavar="N",
        help="replays of each (default: 3; 1 of a trace with a router that repeats itself)",
    )
    parser.add_argument("--report", metavar="FILE.html", type=Path, help="write a page with plots")
    parser.add_argument("--no-cache", action="store_true", help="replay what was replayed before")
    arguments.add_json(parser)
    arguments.add_sets(parser)
    arguments.add_given(parser)


def duration_ms(text: str) -> float:
    """Milliseconds of `500ms`, `0.5s`; a bare number would be taken for either."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it as 500ms or 0.5s")
    return float(found[1]) * (1000 if found[2] == "s" else 1)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _share(text: str) -> float:
    value = _factor(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than all; 0.95 are 95 %")
    return value


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 100")
    return int(text)


def _rates(text: str) -> tuple[float, ...]:
    rates = tuple(_factor(part) if part.strip("0.") else 0.0 for part in text.split(","))
    if len(rates) > 5 or max(rates) > 1:
        raise argparse.ArgumentTypeError(f"{text!r}: up to five numbers from 0 to 1")
    return rates


def run(args: argparse.Namespace) -> int:
    from penstock.errors import UsageError
    from penstock.manifests.source import open_source
    from penstock.simulate.cache import Cache, kept
    from penstock.simulate.replay import Replays, require_environment
    from penstock.simulate.replayable import replayable
    from penstock.simulate.study import Study, sped_up
    from penstock.simulate.timing import Acceptance
    from penstock.workload import find_workload

    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: no replay goes on without us
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's wish
            signal.signal(number, signal.default_int_handler)
    if args.report and not args.report.absolute().parent.is_dir():
        raise UsageError(f"--report: there is no folder {args.report.parent}")
    loaded = find_workload(args.workload, args.trace)
    python = require_environment()
    acceptance = Acceptance(args.acceptance) if args.acceptance else None
    given = arguments.given_of(args)
    deployments = [
        _promised(args, replayable(open_source(path, args.sets), given, acceptance))
        for path in args.graphs
    ]
    if args.until_slo_breaks and not all(d.slo for d in deployments):
        raise UsageError("--until-slo-breaks needs an SLO: --ttft, --itl, or slo in the graph")
    cache = Cache(None, "") if args.no_cache else kept(python)
    with Replays(cache) as replays:
        workload = sped_up(loaded, args.load) if args.load != 1 else loaded
        study = Study(workload=workload, replays=replays, seeds=args.seeds, attain=args.attain)
        return _show(args, study, deployments)


def _promised(args: argparse.Namespace, deployment: Replayable) -> Replayable:
    """With what the command line says instead of the graph's own SLO and price."""
    said = {"ttft_ms": args.ttft, "itl_ms": args.itl, "e2e_ms": args.e2e}
    slo = deployment.slo.model_copy(update={k: v for k, v in said.items() if v is not None})
    return replace(deployment, slo=slo, gpu_hour=args.gpu_hour or deployment.gpu_hour)


def _show(args: argparse.Namespace, study: Study, deployments: list[Replayable]) -> int:
    from penstock.simulate import words
    from penstock.simulate.page import write_page

    note = Notes(sys.stderr, time.monotonic)
    held: list[Held] = []
    if args.until_slo_breaks:
        held = study.held(deployments, note)
        rows = [h.most or h.rows[0] for h in held]
    else:
        rows = study.rows(deployments, lambda done, of: note(f"{done} of {of} replays"))
    note("")
    if args.json:
        print(words.as_json(rows, study.workload, held))
    else:
        load = "each at the load that it holds" if held else words.arrival_of(study.workload)
        print(f"{study.workload.name}: {load}; simulated, not measured")
        for line in words.table(rows):
            print(line)
        for found in held:
            print(words.held_words(found, study.workload))
        for line in words.remarks(rows):
            print(line)
    if args.report:
        write_page(args.report, rows, held, study.workload)
    return 0


class Notes:
    """Progress: on a terminal one line that changes, elsewhere, as in CI, a line now and then."""

    def __init__(self, to: TextIO, clock: Callable[[], float]) -> None:
        self._to = to
        self._clock = clock
        self._last = clock()

    def __call__(self, text: str) -> None:
        if self._to.isatty():
            print(f"\r\x1b[K{text}", end="", file=self._to, flush=True)
        elif text and self._clock() - self._last >= NOTE_S:
            self._last = self._clock()
            print(text, file=self._to, flush=True)
