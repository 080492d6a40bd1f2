"""Arguments that `simulate`, `plan` and `bench` share, what follows from them, and signals."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.command_line import add_switch
from penstock.cli.other_names import warn_renamed
from penstock.cli.values import acceptance_rates, add_count, duration_ms, positive_number, share
from penstock.errors import UsageError
from penstock.text.numbers import plain_number, significant

if TYPE_CHECKING:
    from penstock.graph.slo import Slo
    from penstock.simulate.acceptance import Acceptance
    from penstock.simulate.calibration import CalibrationFile
    from penstock.simulate.model import Replayable
    from penstock.simulate.replay import Replays
    from penstock.workload.load import LoadedWorkload


LEAST_RATE = 1 / 86400  # requests/s; the replay's clock has no room for years
ACCEPTANCE = (
    "acceptance rate of each draft token with speculative decoding, such as 0.8,0.6,0.5, or the "
    "kind of text of published rates, such as chat"
)


class _OldFlag(argparse.Action):
    """Stores the value as ``const`` (the new flag) does, and prints a warning."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        warn_renamed(parser.prog, str(option_string), str(self.const))
        setattr(namespace, self.dest, values)


def add_old_flag(
    parser: argparse._ActionsContainer,
    old: str,
    new: str,
    convert: Callable[[str], Any],
    choices: Iterable[str] | None = None,
) -> None:
    """The old name of an option, which is accepted for one release."""
    parser.add_argument(
        old,
        dest=new.removeprefix("--").replace("-", "_"),
        type=convert,
        choices=choices,
        action=_OldFlag,
        const=new,
        help=argparse.SUPPRESS,
    )


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "--no-cache", "ignore the results of earlier replays")


def requested_replays(args: argparse.Namespace) -> Replays:
    """With the results of earlier replays, unless `--no-cache` is given. MissingToolError without
    the environment."""
    from penstock.simulate.replay import Cache, Replays, environment_cache, require_environment

    python = require_environment()
    is_fresh = getattr(args, "no_cache", False)
    return Replays(Cache(None, "") if is_fresh else environment_cache(python))


def requested_acceptance(
    args: argparse.Namespace, *, prices_draft: bool = True
) -> Acceptance | None:
    from penstock.simulate.acceptance import Acceptance

    return Acceptance(args.acceptance, prices_draft=prices_draft) if args.acceptance else None


def add_calibration(parser: argparse._ActionsContainer, more: str = "") -> None:
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help=f"{more}correct predictions with the factors in FILE, which `bench --calibrate` wrote "
        "(default: no factors, and the time of the frontend that is fitted to published TTFTs)",
    )


def requested_calibrations(args: argparse.Namespace) -> CalibrationFile | None:
    """InputError or GraphError if the file cannot be read."""
    from penstock.simulate.calibration import CalibrationFile, load_calibrations

    if args.calibration is None:
        return None
    content = load_calibrations(args.calibration)
    return CalibrationFile(name=args.calibration.name, content=content)


def with_calibration(
    args: argparse.Namespace, deployments: Sequence[Replayable]
) -> list[Replayable]:
    """With the factors of the file, where it has some. UsageError if it has none at all."""
    from penstock.simulate.calibration import group_of

    file = requested_calibrations(args)
    if file is None:
        return list(deployments)
    keys = dict.fromkeys(map(group_of, deployments))
    if not any(map(file.of, keys)):
        fix = "Name another file, or measure with `penstock bench --predict GRAPH --calibrate`."
        raise UsageError(file.missing(*keys), place="--calibration", fix=fix)
    return [file.calibrated(deployment) for deployment in deployments]


def add_workload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workload",
        required=True,
        type=partial(current_workload, parser.prog),
        metavar="NAME|FILE",
        help="workload file, or one of short-chat, document, long-context, agentic, conversation",
    )
    parser.add_argument(
        "--trace", metavar="FILE", type=Path, help="recorded requests of the workload"
    )
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument(
        "--scale",
        type=positive_number,
        default=1.0,
        metavar="X",
        help="multiply the workload's arrival rate or concurrency by X (default: 1)",
    )
    rate.add_argument(
        "--rate",
        type=positive_number,
        metavar="R",
        help="mean arrival rate in requests/s (default: the workload's)",
    )
    add_count(
        rate, "--concurrency", "N requests at the same time, instead of the workload's arrivals"
    )
    add_old_flag(rate, "--load", "--scale", positive_number)


def current_workload(prog: str, name: str) -> str:
    """The name of a workload, also for one that was renamed, with a warning of ``prog``."""
    from penstock.workload.load import RENAMED

    current = RENAMED.get(name, name)
    if current != name:
        warn_renamed(prog, name, current)
    return current


def load_argument(args: argparse.Namespace, loaded: LoadedWorkload, times: float) -> str:
    """`--rate 5`: the argument for ``times`` the requested load, in the form in which it was
    requested. ``loaded``: as `requested_workload` returns it."""
    if args.concurrency:
        return f"--concurrency {loaded.scaled(times).workload.concurrency}"
    if args.rate:
        return f"--rate {plain_number(args.rate * times, 6)}"
    return f"--scale {plain_number(args.scale * times, 6)}"


def requested_workload(args: argparse.Namespace) -> LoadedWorkload:
    """The workload at the requested scale, rate or concurrency.

    UsageError for `--rate` of a workload without an arrival rate, and for less than one request
    per day.
    """
    from penstock.workload import find_workload

    loaded = find_workload(args.workload, args.trace)
    if args.concurrency:
        return loaded.with_concurrency(args.concurrency)
    scale: float = args.scale
    flag = "--rate" if args.rate else "--scale"
    if args.rate or scale != 1:
        require_arrival_rate(loaded, flag)
    if args.rate:
        mean = loaded.mean_rate()
        if mean is None:
            message = f"{loaded.name} has no arrival rate"
            raise UsageError(message, place="--rate", fix="Use --scale instead.")
        scale = args.rate / mean
    rate = loaded.mean_rate() if scale < 1 else None
    if rate is not None and rate * scale < LEAST_RATE:
        message = f"{significant(rate * scale)} requests/s are less than one request per day"
        raise UsageError(message, place=flag, fix="Use a larger value.")
    return loaded.at_scale(scale) if scale != 1 else loaded


def require_arrival_rate(loaded: LoadedWorkload, flag: str) -> None:
    """UsageError for `flag`, which changes the arrival rate, if all requests of the trace arrive at
    once."""
    if loaded.is_at_once:
        message = f"all requests of {loaded.trace_source} arrive at once, so there is no rate"
        raise UsageError(message, place=flag, fix=f"Remove {flag}.")


def add_latencies(parser: argparse._ActionsContainer) -> None:
    """The limits of an SLO."""
    parser.add_argument(
        "--ttft", type=duration_ms, metavar="500ms", help="SLO: maximum time to first token"
    )
    parser.add_argument(
        "--itl",
        type=duration_ms,
        metavar="20ms",
        help="SLO: maximum inter-token latency, averaged over each request",
    )
    parser.add_argument(
        "--e2e", type=duration_ms, metavar="30s", help="SLO: maximum time to the last token"
    )


def add_slo(parser: argparse.ArgumentParser) -> None:
    """The SLO, how many requests must meet it, and the price of a GPU."""
    add_latencies(parser)
    parser.add_argument(
        "--attain",
        type=share,
        default=0.95,
        metavar="SHARE",
        help="share of requests that must meet the SLO (default: 0.95)",
    )
    price = parser.add_mutually_exclusive_group()
    price.add_argument(
        "--gpu-hour-price",
        type=positive_number,
        metavar="PRICE",
        help="price of one GPU for one hour, in any currency",
    )
    add_old_flag(price, "--gpu-hour", "--gpu-hour-price", positive_number)


def requested_slo(args: argparse.Namespace, graph: Slo | None = None) -> Slo:
    """The SLO of the command line, and the graph's where the command line sets none."""
    from penstock.graph.slo import Slo

    values = {"ttft_ms": args.ttft, "itl_ms": args.itl, "e2e_ms": args.e2e}
    return (graph or Slo()).model_copy(update={k: v for k, v in values.items() if v is not None})


def add_acceptance(parser: argparse.ArgumentParser, text: str = ACCEPTANCE) -> None:
    parser.add_argument("--acceptance", type=acceptance_rates, metavar="RATES", help=text)


def add_seed(parser: argparse._ActionsContainer, what: str) -> None:
    add_count(parser, "--seed", f"seed of {what} (default: 0)", least=0, most=2**32 - 1, default=0)


def add_request_timeout(parser: argparse.ArgumentParser, default_ms: float) -> None:
    parser.add_argument(
        "--request-timeout",
        type=duration_ms,
        default=default_ms,
        metavar="60s",
        help=f"time after which a request counts as failed (default: {default_ms / 1000:g}s)",
    )


def end_as_interrupted() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that no replay outlives this process."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, signal.default_int_handler)
