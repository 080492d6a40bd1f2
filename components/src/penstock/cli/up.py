"""`penstock up GRAPH`: run a graph on this machine, apply its edits, drain it on Ctrl-C."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.gateway import add_tls, certificate_of
from penstock.cli.progress import Progress, add_progress
from penstock.cli.replaying import requested_acceptance
from penstock.cli.values import integer_between, positive_number
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.local.gateway import GatewayOptions
    from penstock.local.up import WhenReady
    from penstock.twin.twin import Twin


PORT = integer_between(0, 65535)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_graph(parser)
    arguments.add_sets(parser)
    arguments.add_mockers(
        parser,
        engine="replace every engine with the mocker, even if this machine has a GPU",
        timing="run mockers with predicted step times of the graph's GPUs (needs the environment "
        "sim)",
        speed="simulation speed with --timing; 0.5 runs at half real time (default: 1)",
    )
    arguments.add_hints(parser)
    add_switch(parser, "--skip-check", "start even if `penstock check` finds errors")
    arguments.add_no_install(
        parser,
        "dynamo-1.6 (142 MB, not in a checkout), llamacpp (129 MB, for llama.cpp) "
        "and page (82 MB, for --page)",
    )
    _add_address(parser)
    add_switch(parser, "--detach", "return when the graph is ready and keep it running")
    parser.add_argument(
        "--start-timeout-s",
        type=positive_number,
        default=300.0,
        metavar="S",
        help="time limit in seconds for the first completion (default: 300)",
    )
    _add_page(parser)
    add_switch(
        parser, "--trace", "record traces for `penstock trace`, even if the graph has no `tracing`"
    )
    _add_gateway(parser)
    add_progress(parser)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=PORT, help="port of the endpoint (default: the graph's; 0: any free port)"
    )
    parser.add_argument(
        "--host",
        type=_address,
        default="127.0.0.1",
        help="address of the endpoint; all other sockets stay on loopback (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        type=_host_name,
        action="append",
        default=[],
        help="also accept requests whose header Host is NAME, besides localhost and IP addresses; "
        "repeatable",
    )


def _add_page(parser: argparse.ArgumentParser) -> None:
    add_switch(
        parser,
        "--page",
        "also serve the page of `penstock top --web` on loopback (needs the environment page)",
    )
    parser.add_argument(
        "--page-port", type=PORT, metavar="N", help="port of the page (default: any free port)"
    )


def _add_gateway(parser: argparse.ArgumentParser) -> None:
    gateway = parser.add_argument_group("gateway")
    gateway.add_argument(
        "--gateway",
        metavar="FILE",
        type=Path,
        help="require an API key from clients; FILE has lines CLIENT=KEY and mode 600 "
        "(limits: the graph's `gateway`; needs the environment envoy)",
    )
    add_tls(gateway)


def _address(text: str) -> str:
    """An IP address; host names are resolved."""
    import socket

    try:
        return str(socket.getaddrinfo(text or "?", None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address of this machine") from None


def _host_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a host name, such as gpu-1.example.com")
    return text


def run(args: argparse.Namespace) -> int:
    arguments.require_timing(args, "speed", "acceptance", "gpu", "model")
    _check_page_options(args)
    _install_missing(args)
    if not args.gateway:
        arguments.require_with(args, "a gateway", ["tls_cert", "tls_key"], "Add --gateway FILE.")
    if args.detach:
        from penstock.local.detach import detach

        with Progress(args, f"starting {args.graph}").running():
            return detach(args.graph, _foreground_argv(), args.start_timeout_s)
    return _foreground(args)


def _install_missing(args: argparse.Namespace) -> None:
    from penstock.local.missing_environment import install_missing

    if not args.no_install:
        with_engine = args.engine is None
        install_missing(args.graph, args.sets, with_engine=with_engine, quiet=args.quiet)


def _check_page_options(args: argparse.Namespace) -> None:
    """UsageError, MissingToolError or PortInUseError for what the page cannot have."""
    if not args.page:
        arguments.require_with(args, "a page", ["page_port"], "Add --page.")
        return
    for option in ("detach", "timing"):
        if getattr(args, option):
            raise UsageError(f"--page and --{option} cannot be combined: use `penstock top --web`")
    from penstock.live.page import serve

    serve.require_free_port(args.page_port or 0, "--page-port")
    arguments.require_tool(args, serve)


def _gateway_options(args: argparse.Namespace) -> GatewayOptions | None:
    """Checked before anything starts."""
    if args.gateway is None:
        return None
    from penstock.gateway.keys import load_keys
    from penstock.local.gateway import GatewayOptions
    from penstock.local.run_envoy import require_envoy

    require_envoy()
    load_keys(args.gateway)
    return GatewayOptions(keys=args.gateway.absolute(), certificate=certificate_of(args))


def _foreground_argv() -> list[str]:
    """This command line without `--detach`."""
    return [part for part in sys.argv[1:] if part != "--detach"]


def _foreground(args: argparse.Namespace) -> int:
    from penstock.local.deployment import Overrides
    from penstock.local.machine import inspect_machine
    from penstock.local.status_table import Screen
    from penstock.local.up import Up, UpOptions
    from penstock.manifests.deployment import Engine

    twin = _twin(args)
    options = UpOptions(
        sets=tuple(args.sets),
        overrides=Overrides(
            engine=Engine(args.engine) if args.engine else None,
            port=args.port,
            hosts=tuple(args.allow_host),
        ),
        host=args.host,
        start_timeout_s=args.start_timeout_s,
        is_checked=not args.skip_check,
        is_traced=args.trace,
        timing=twin.timed if twin else None,
        when_ready=twin.compare if twin else _page(args),
        gateway=_gateway_options(args),
    )
    with Screen(quiet=args.quiet) as screen:
        return Up(args.graph, options, inspect_machine(), screen.say, screen.show).run()


def _page(args: argparse.Namespace) -> WhenReady | None:
    if not args.page:
        return None
    from penstock.live.page.serve import page_of_up

    return page_of_up(args.graph, args.page_port or 0)


def _twin(args: argparse.Namespace) -> Twin | None:
    if not args.timing:
        return None
    from penstock.twin.twin import Twin

    acceptance = requested_acceptance(args, prices_draft=False)
    return Twin(args.speed or 1.0, arguments.hints_of(args), acceptance)
