"""`penstock gateway render|up FILE`: an API gateway in front of graphs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.gateway_arguments import add_tls, certificate_of

if TYPE_CHECKING:
    from penstock.gateway.policy import Policy

DEFAULT_PORT = 8080


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=["render", "up"],
        help="render: print the manifests for Envoy Gateway; up: run an Envoy on this machine",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="gateway YAML")
    arguments.add_output(parser)
    local = parser.add_argument_group("up")
    local.add_argument(
        "--keys",
        metavar="FILE",
        type=Path,
        help="read API keys from FILE: lines CLIENT=KEY, mode 600",
    )
    local.add_argument(
        "--backend",
        dest="backends",
        metavar="RELEASE=URL",
        action="append",
        default=[],
        help="send the requests of RELEASE to URL; repeat for each release",
    )
    local.add_argument(
        "--shadow", metavar="URL", help="send the mirrored requests of the shadow release to URL"
    )
    local.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    local.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help=f"port to listen on (default: {DEFAULT_PORT})",
    )
    add_tls(local)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1 to 65535)")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from penstock.gateway.load import load_gateway
    from penstock.gateway.policy import build_policy
    from penstock.gateway.routes import manifests

    policy = build_policy(load_gateway(args.file))
    if args.action == "up":
        return _up(args, policy)
    arguments.write_output(manifests(policy, args.file.name), args.output)
    return 0


def _up(args: argparse.Namespace, policy: Policy) -> int:
    from penstock.errors import UsageError
    from penstock.gateway.envoy import Address
    from penstock.gateway.keys import load_keys
    from penstock.gateway.local_setup import local_setup
    from penstock.local.run_envoy import require_envoy, run_envoy

    if args.keys is None:
        raise UsageError("--keys is required: a file with lines CLIENT=KEY")
    require_envoy()
    listen = Address(host=args.host, port=args.port)
    keys = load_keys(args.keys)
    local = local_setup(policy, listen, args.backends, args.shadow, keys, certificate_of(args))
    return run_envoy(policy, local)
