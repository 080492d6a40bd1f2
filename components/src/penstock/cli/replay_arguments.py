"""What `simulate` and `plan` share on the command line: traffic, promises, progress, signals."""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from penstock.graph.slo import Slo
    from penstock.workload.load import LoadedWorkload

NOTE_S = 10.0  # between two lines of progress where nobody looks at a terminal


def add_workload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workload",
        required=True,
        metavar="NAME|FILE",
        help="a workload's file, or short-chat, document, long-context, agentic, conversation",
    )
    parser.add_argument("--trace", metavar="FILE", type=Path, help="recorded requests of it")
    parser.add_argument(
        "--load", type=positive_number, default=1.0, metavar="X", help="requests X times as fast"
    )


def workload_of(args: argparse.Namespace) -> LoadedWorkload:
    """The workload at its `--load`."""
    from penstock.workload import find_workload

    loaded = find_workload(args.workload, args.trace)
    return loaded.at_scale(args.load) if args.load != 1 else loaded


def add_slo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ttft", type=duration_ms, metavar="500ms", help="SLO: first token")
    parser.add_argument("--itl", type=duration_ms, metavar="20ms", help="SLO: between tokens")
    parser.add_argument("--e2e", type=duration_ms, metavar="30s", help="SLO: last token")
    parser.add_argument(
        "--attain",
        type=share,
        default=0.95,
        metavar="SHARE",
        help="share of requests within the SLO for a load to be held (default: 0.95)",
    )
    parser.add_argument(
        "--gpu-hour", type=positive_number, metavar="PRICE", help="of one GPU for an hour"
    )


def slo_of(args: argparse.Namespace, graph: Slo | None = None) -> Slo:
    """What the command line promises, over what the graph does."""
    from penstock.graph.slo import Slo

    said = {"ttft_ms": args.ttft, "itl_ms": args.itl, "e2e_ms": args.e2e}
    return (graph or Slo()).model_copy(update={k: v for k, v in said.items() if v is not None})


def add_acceptance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--acceptance",
        type=_rates,
        metavar="0.8,0.6,…",
        help="chance of each draft token of a speculating engine",
    )


def _rates(text: str) -> tuple[float, ...]:
    rates = tuple(positive_number(part) if part.strip("0.") else 0.0 for part in text.split(","))
    if len(rates) > 5 or max(rates) > 1:
        raise argparse.ArgumentTypeError(f"{text!r}: up to five numbers from 0 to 1")
    return rates


def duration_ms(text: str) -> float:
    """Milliseconds of `500ms`, `0.5s`; a bare number would be taken for either."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write it as 500ms or 0.5s")
    return float(found[1]) * (1000 if found[2] == "s" else 1)


def positive_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def share(text: str) -> float:
    value = positive_number(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than all; 0.95 are 95 %")
    return value


def integer_between(most: int, least: int = 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            words = f"{text!r} is no whole number from {least} to {most}"
            raise argparse.ArgumentTypeError(words)
        return int(text)

    return read


def end_as_interrupted() -> None:
    """SIGTERM and SIGHUP as Ctrl-C: no replay goes on without us."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's wish
            signal.signal(number, signal.default_int_handler)


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
