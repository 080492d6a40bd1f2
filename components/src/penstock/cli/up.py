"""`penstock up GRAPH`: run it here, follow its edits, drain it on Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.replay_arguments import add_acceptance, positive_number

if TYPE_CHECKING:
    from penstock.twin.twin import Twin

FASTEST = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_sets(parser)
    parser.add_argument(
        "--engine",
        choices=["mocker"],
        help="run the mocker in every engine's place, also where a GPU is present",
    )
    parser.add_argument(
        "--timing",
        choices=["model"],
        help="mockers take the predicted time of the graph's hardware (environment sim)",
    )
    parser.add_argument(
        "--speed",
        type=_speed,
        metavar="X",
        help="of the predicted times' clock: 0.5 is half as fast as real (default: 1)",
    )
    add_acceptance(parser)
    arguments.add_hints(parser)
    parser.add_argument(
        "--skip-check",
        action="store_true",
        help="start although `penstock check` finds errors, which are about a cluster with GPUs",
    )
    parser.add_argument(
        "--port", type=_port, help="port of the endpoint (default: the graph's; 0: any free)"
    )
    parser.add_argument(
        "--host",
        type=_address,
        default="127.0.0.1",
        help="address of the endpoint (default: 127.0.0.1); everything else stays on loopback",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return when the graph is ready; it runs on",
    )
    parser.add_argument(
        "--start-timeout-s",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds until the first completion must have come back (default: 300)",
    )


def _speed(text: str) -> float:
    """Faster than this no machine serves."""
    value = positive_number(text)
    if not 0.01 <= value <= FASTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0.01 and {FASTEST}")
    return value


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is not between 0 and 65535")
    return port


def _address(text: str) -> str:
    """An IP address; a name of this machine becomes the address it stands for."""
    import socket

    try:
        return str(socket.getaddrinfo(text or "?", None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        raise argparse.ArgumentTypeError(f"{text!r} is no address of this machine") from None


def run(args: argparse.Namespace) -> int:
    _require_timing(args)
    if args.detach:
        from penstock.local.detach import detach

        return detach(args.graph, _foreground_argv(), args.start_timeout_s)
    return _foreground(args)


def _require_timing(args: argparse.Namespace) -> None:
    """What says something of predicted times needs them."""
    from penstock.errors import UsageError

    said = [name for name in ("speed", "acceptance", "gpu", "model") if getattr(args, name)]
    if said and not args.timing:
        raise UsageError(f"--{said[0]} is for predicted times: add --timing model")


def _foreground_argv() -> list[str]:
    """This very command line, staying in the foreground of its own session."""
    return [part for part in sys.argv[1:] if part != "--detach"]


def _foreground(args: argparse.Namespace) -> int:
    from penstock.local.adapt import Overrides
    from penstock.local.machine import inspect_machine
    from penstock.local.status_table import Screen
    from penstock.local.up import Up, UpOptions
    from penstock.manifests.deployment import Engine

    twin = _twin(args)
    options = UpOptions(
        sets=tuple(args.sets),
        overrides=Overrides(engine=Engine(args.engine) if args.engine else None, port=args.port),
        host=args.host,
        start_timeout_s=args.start_timeout_s,
        is_checked=not args.skip_check,
        timing=twin.timed if twin else None,
        when_ready=twin.compare if twin else None,
    )
    with Screen() as screen:
        return Up(args.graph, options, inspect_machine(), screen.say, screen.show).run()


def _twin(args: argparse.Namespace) -> Twin | None:
    if not args.timing:
        return None
    from penstock.simulate.timing import Acceptance
    from penstock.twin.twin import Twin

    acceptance = Acceptance(args.acceptance) if args.acceptance else None
    return Twin(args.speed or 1.0, arguments.hints_of(args), acceptance)
