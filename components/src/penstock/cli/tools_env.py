"""`penstock tools env install NAME`: separate environments for large tools."""

from __future__ import annotations

import argparse
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.command_line import add_switch
from penstock.cli.outputs import print_json
from penstock.cli.progress import FIRST_S
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.environments.install import Environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=["install", "list", "remove"],
        help="install, list or remove environments (default: list)",
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="environments to install or remove; `penstock tools env` prints the names",
    )
    arguments.add_json(parser)
    add_switch(parser, "--wide", "list: print each description on one line")


def _table(environments: Sequence[Environment], *, wide: bool) -> Iterator[str]:
    """One environment in each line, or several lines for a description that is too long."""
    from penstock.text.terminal import NARROW

    longest = max(len(environment.name) for environment in environments)
    for environment in environments:
        before = f"{environment.name:<{longest}}  {environment.state:<13}  "
        room = NARROW - len(before)
        text = environment.description
        lines = [text] if wide else textwrap.wrap(text, room, break_on_hyphens=False)
        yield before + f"\n{' ' * len(before)}".join(lines)


def run(args: argparse.Namespace) -> int:
    from penstock.environments.install import (
        find_environment,
        find_removable,
        install,
        list_environments,
        remove,
    )
    from penstock.text.terminal import duration_text

    if args.json and args.action != "list":
        fix = "Remove --json, or run `penstock tools env list --json`."
        raise UsageError(f"{args.action} has no --json", fix=fix)
    if args.action == "list" and args.names:
        raise UsageError(
            f"unexpected argument {args.names[0]!r}", fix="Run `penstock tools env` without it."
        )
    if args.action == "list" and args.json:
        print_json([environment.as_dict() for environment in list_environments()])
    elif args.action == "list":
        print(*_table(list_environments(), wide=args.wide), sep="\n")
    elif args.action == "remove":
        for environment in [find_removable(name) for name in args.names or (None,)]:
            print(remove(environment))
    else:
        for environment in [find_environment(name) for name in args.names or (None,)]:
            started = time.monotonic()
            done = install(environment, quiet=args.quiet)
            took_s = time.monotonic() - started
            print(f"{done} ({duration_text(took_s)})" if took_s > FIRST_S else done)
    return 0
