"""`penstock env install NAME`: separate environments for large tools."""

from __future__ import annotations

import argparse
import time

from penstock.cli.progress import FIRST_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=["install", "list", "remove"],
        help="install, list or remove environments",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="environment to install or remove; `penstock env list` prints the names",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print no progress of the installation"
    )


def run(args: argparse.Namespace) -> int:
    from penstock.environments import find_environment, install, list_environments, remove
    from penstock.terminal import duration_text

    if args.action == "list":
        for environment in list_environments():
            print(f"{environment.name:<12} {environment.state:<14} {environment.description}")
        return 0
    environment = find_environment(args.name)
    if args.action == "remove":
        print(remove(environment))
        return 0
    started = time.monotonic()
    done = install(environment, quiet=args.quiet)
    took_s = time.monotonic() - started
    print(f"{done} ({duration_text(took_s)})" if took_s > FIRST_S else done)
    return 0
