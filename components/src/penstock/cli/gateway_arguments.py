"""Options of a local gateway that `up` and `gateway up` share."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InputError, Problem, UsageError

if TYPE_CHECKING:
    from penstock.gateway.envoy import Certificate


def add_tls(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--tls-cert", metavar="FILE", type=Path, help="serve TLS with this PEM certificate chain"
    )
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="serve TLS with this PEM key")


def certificate_of(args: argparse.Namespace) -> Certificate | None:
    """The certificate of `add_tls`; None without TLS. UsageError when only one is given, InputError
    when TLS cannot be served with them."""
    from penstock.gateway.envoy import Certificate

    if (args.tls_cert is None) != (args.tls_key is None):
        raise UsageError("give both --tls-cert and --tls-key, or neither")
    if args.tls_cert is None:
        return None
    _require_pair(args.tls_cert, args.tls_key)
    return Certificate(chain=args.tls_cert.absolute(), key=args.tls_key.absolute())


def _require_pair(chain: Path, key: Path) -> None:
    """InputError unless they are a certificate and its key."""
    taken = []
    for option, path, marker in (
        ("--tls-cert", chain, b"BEGIN CERTIFICATE-----"),
        ("--tls-key", key, b"PRIVATE KEY-----"),
    ):
        what = "certificate" if path is chain else "private key"
        try:
            is_kind = marker in path.read_bytes()
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
        else:
            if is_kind:
                continue
            message = f"has no PEM {what}"
        fix = f"Set {option} to the PEM file of the {what}."
        taken.append(Problem(file=str(path), place=option, message=message, fix=fix))
    if taken:
        raise InputError(*taken)
    try:
        # An empty password: a prompt would wait, and Envoy cannot ask.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password="")
    except (ssl.SSLError, ValueError) as error:
        message = f"cannot be used with --tls-cert {chain}: {error}"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            message = f"is not the key of --tls-cert {chain}"
        fix = "Set --tls-cert and --tls-key to a PEM certificate chain and its unencrypted key."
        raise InputError(message, file=str(key), place="--tls-key", fix=fix) from None
