"""`penstock completion bash|zsh|fish`: print a script that completes commands, options and files.

The scripts are static: a shell that completes starts no Python.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from penstock.cli.command_line import CommandParser

FILE = re.compile(r"\b(FILE|GRAPH|MANIFEST)\b")
INSTALL = {
    "bash": "penstock completion bash > ~/.local/share/bash-completion/completions/penstock",
    "zsh": "penstock completion zsh > a folder of $fpath, as _penstock",
    "fish": "penstock completion fish > ~/.config/fish/completions/penstock.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=list(INSTALL), help="shell that reads the script")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "install:\n" + "\n".join(f"  {command}" for command in INSTALL.values())


def run(args: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(every_command(), shell=args.shell))
    return 0


def every_command() -> argparse.ArgumentParser:
    """One parser with all commands, as the generator of the scripts expects it."""
    from penstock.cli.main import COMMANDS, module_of

    top = argparse.ArgumentParser(prog="penstock", allow_abbrev=False)
    top.add_argument("--version", action="version", version="", help="print the version")
    commands = top.add_subparsers(parser_class=CommandParser)
    for command, text in COMMANDS.items():
        parser = commands.add_parser(command, help=text)
        module_of(command).add_arguments(parser)
        for action in parser.actions():
            _complete_files(action)
    return top


def _complete_files(action: argparse.Action) -> None:
    import shtab

    metavar = str(action.metavar or "")
    if metavar == "DIR":
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif action.type is Path or FILE.search(metavar):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
