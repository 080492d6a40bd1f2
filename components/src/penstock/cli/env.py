"""`penstock env install NAME`: separate environments for large tools."""

from __future__ import annotations

import argparse


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


def run(args: argparse.Namespace) -> int:
    from penstock.environments import find_environment, install, list_environments, remove

    if args.action == "list":
        for environment in list_environments():
            print(f"{environment.name:<12} {environment.state:<14} {environment.description}")
        return 0
    act = install if args.action == "install" else remove
    print(act(find_environment(args.name)))
    return 0
