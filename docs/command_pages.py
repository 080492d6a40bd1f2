"""The reference of the commands, from their argument parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from penstock.cli.main import COMMANDS, SUBCOMMANDS, command_parser

COMMANDS_MARK = "<!-- commands: generated from the parsers when the site is built -->"


def command_reference() -> str:
    """A section for each command: purpose, usage, arguments and options."""
    return "\n".join(line for verb in _verbs() for line in _section(verb))


def _verbs() -> Iterator[str]:
    """Each command, followed by its subcommands."""
    for verb in COMMANDS:
        yield verb
        yield from (name for name in SUBCOMMANDS if name.startswith(f"{verb} "))


def _section(verb: str) -> Iterator[str]:
    parser = command_parser(verb)
    yield from _parser(parser, f"penstock {verb}", (COMMANDS | SUBCOMMANDS)[verb], level=2)


def _parser(
    parser: argparse.ArgumentParser, name: str, purpose: str, *, level: int
) -> Iterator[str]:
    yield from ("#" * level + f" `{name}`", "")
    if purpose:
        yield from (purpose[0].upper() + purpose[1:] + ".", "")
    yield from ("```text", parser.format_usage().removeprefix("usage: ").rstrip(), "```", "")
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS]
    nested = [a for a in actions if isinstance(a, argparse._SubParsersAction)]
    rows = [_row(parser, action) for action in actions if action not in nested]
    yield from ("| argument or option | description |", "|---|---|", *rows, "")
    for action in nested:
        purposes = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for sub, subparser in action.choices.items():
            yield from _parser(subparser, f"{name} {sub}", purposes.get(sub, ""), level=level + 1)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """One line of the table; the help text is what `--help` prints."""
    value = "" if action.nargs == 0 else _value(parser, action)
    names = [f"{name} {value}".strip() for name in action.option_strings] or [value]
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return f"| {', '.join(f'`{name}`' for name in names)} | {_cell(text)} |".replace("\n", " ")


def _value(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    if action.option_strings:
        return formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    return formatter._format_args(action, formatter._get_default_metavar_for_positional(action))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
