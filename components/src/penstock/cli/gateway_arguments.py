"""Options of a local gateway that `up` and `gateway up` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.gateway.envoy import Certificate


def add_tls(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--tls-cert", metavar="FILE", type=Path, help="serve TLS with this PEM certificate chain"
    )
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="serve TLS with this PEM key")


def certificate_of(args: argparse.Namespace) -> Certificate | None:
    """The certificate of `add_tls`; None without TLS. UsageError when one file is missing."""
    from penstock.errors import UsageError
    from penstock.gateway.envoy import Certificate

    if (args.tls_cert is None) != (args.tls_key is None):
        raise UsageError("give both --tls-cert and --tls-key, or neither")
    if args.tls_cert is None:
        return None
    files = dict.fromkeys((args.tls_cert, args.tls_key))
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise UsageError(*(f"{path}: no such file" for path in missing))
    return Certificate(chain=args.tls_cert.absolute(), key=args.tls_key.absolute())
