"""`penstock tools TOOL`: environments, schemas, shell completion and small models.

`cli/main.py` runs the tool of this name; without one, this command prints the list of the tools.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tools = dict(_tools())
    parser.add_argument(
        "tool", metavar="TOOL", nargs="?", choices=tools, help=f"one of {', '.join(tools)}"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _list()


def run(_: argparse.Namespace) -> int:
    print(_list())
    return 0


def _tools() -> Iterator[tuple[str, str]]:
    """Name and purpose of each tool."""
    from penstock.cli.main import SUBCOMMANDS

    for name, purpose in SUBCOMMANDS.items():
        if name.startswith("tools "):
            yield name.removeprefix("tools "), purpose


def _list() -> str:
    lines = (f"  {name:<10}  {purpose}" for name, purpose in _tools())
    return "\n".join(("tools:", *lines))
