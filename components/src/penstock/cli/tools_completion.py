"""`penstock tools completion bash|zsh|fish`: print a script that completes command lines.

The scripts are static: a shell that completes starts no Python.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from penstock.cli.command_line import CommandParser

FILE = re.compile(r"\b(FILE|GRAPH|MANIFEST)\b")
INSTALL = {
    "bash": "penstock tools completion bash \\\n"
    "    > ~/.local/share/bash-completion/completions/penstock",
    "zsh": "penstock tools completion zsh \\\n    > a folder of $fpath, as _penstock",
    "fish": "penstock tools completion fish \\\n    > ~/.config/fish/completions/penstock.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=list(INSTALL), help="shell that reads the script")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "install:\n" + "\n".join(f"  {command}" for command in INSTALL.values())


# shtab does not quote the word, so that folders with spaces are not completed. `complete` adds a
# space after a word and a backslash before `=`, but `decode=` needs a number.
CORRECTIONS = """
_shtab_compgen_files() {
  compgen -f -- "$1"
}
_shtab_compgen_dirs() {
  compgen -d -- "$1"
}
_penstock() {
  _shtab_penstock "$@"
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace +o filenames 2>/dev/null || :
}
complete -o filenames -F _penstock penstock
"""


def run(args: argparse.Namespace) -> int:
    import shtab

    script = shtab.complete(every_command(), shell=args.shell)
    print(script + CORRECTIONS if args.shell == "bash" else script)
    return 0


def every_command() -> argparse.ArgumentParser:
    """One parser with all commands, as the generator of the scripts expects it."""
    from penstock.cli.main import COMMANDS, SUBCOMMANDS

    top = argparse.ArgumentParser(prog="penstock", allow_abbrev=False)
    top.add_argument("--version", action="version", version="", help="print the version")
    commands = top.add_subparsers(parser_class=CommandParser)
    words = _words()
    parsers = {}
    for command, text in COMMANDS.items():
        parsers[command] = commands.add_parser(command, help=text)
        _add_completed(parsers[command], command, words)
    below: dict[str, argparse._SubParsersAction[CommandParser]] = {}
    for command, text in SUBCOMMANDS.items():
        first, second = command.split()
        if second.startswith("--"):
            continue  # an option of the command, which the shell completes as others
        # Last, so that the first argument is also completed as a file.
        if first not in below:
            below[first] = parsers[first].add_subparsers(parser_class=CommandParser)
        _add_completed(below[first].add_parser(second, help=text), command, words)
        _complete_first(parsers[first], second)
    return top


def _add_completed(
    parser: CommandParser, command: str, words: dict[tuple[str, str], list[str]]
) -> None:
    from penstock.cli.main import add_arguments as add_arguments_of

    add_arguments_of(parser, command)
    for action in parser.actions():
        names = words.get((command, action.dest)) or words.get(("", action.dest))
        if names and action.choices is None:
            action.choices = names  # of this parser, which parses nothing
        else:
            _complete_files(action)


def _complete_first(parser: CommandParser, word: str) -> None:
    """Offer ``word`` as the first argument too, next to a file or the words of earlier calls."""
    import shtab

    first = next(action for action in parser.actions() if not action.option_strings)
    vars(first).pop("complete", None)
    words = [choice for choice in first.choices or () if isinstance(choice, str)]
    files = [] if words == list(first.choices or ()) and words else shtab.Required.FILE
    first.choices = [*files, *(other for other in words if other != word), word]


def _words() -> dict[tuple[str, str], list[str]]:
    """Command (empty: all) and argument → its values, as far as they are known."""
    from penstock.checks.registry import RULES
    from penstock.environments.install import list_environments
    from penstock.graph.text_file import shipped_graphs
    from penstock.hardware import GPUS
    from penstock.plan.starting_graph import MODELS

    rules = [rule.id for rule in RULES]
    pools = ("frontend", "worker", "prefill", "decode")
    return {
        ("", "gpu"): list(GPUS),
        ("tools env", "names"): [environment.name for environment in list_environments()],
        ("explain", "component"): list(pools),
        ("logs", "name"): list(pools),
        ("plan", "model"): [name.rpartition("/")[2] for name in MODELS],
        ("init", "model"): list(MODELS),
        ("scale", "changes"): [f"{pool}=" for pool in pools],
        ("check", "select"): rules,
        ("check", "ignore"): rules,
        ("check", "explain"): rules,
        ("init", "example"): shipped_graphs(),
    }


def _complete_files(action: argparse.Action) -> None:
    import shtab

    metavar = str(action.metavar or "")
    if metavar == "DIR":
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif action.type is Path or FILE.search(metavar):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
