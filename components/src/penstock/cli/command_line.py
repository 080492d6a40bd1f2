"""The argument parser of a command: options before or after arguments, short errors, suggestions.

`cli/main.py` makes one per command and calls `parse`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

_NEGATIVE_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")


class CommandParser(argparse.ArgumentParser):
    """A parser whose options may stand before, between and after the arguments.

    argparse assigns a run of arguments at once, so that in `logs GRAPH -f decode` the optional NAME
    is already empty when `decode` comes. `parse_intermixed_args` loses `--`; sorting the command
    line first, as getopt does, has neither problem. Options take one value or none.
    """

    def __init__(self, owner: Callable[[str], str] = lambda _: "", **options: Any) -> None:
        """``owner``: of an option that this command lacks, the command that has it, or nothing."""
        super().__init__(allow_abbrev=False, **options)
        self._owner = owner
        # Required option → the fix where it is missing.
        self.fixes: dict[str, str] = {}

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse ``argv``; exits with code 2 if it is wrong, with 0 after `--help`."""
        options, arguments = self._sorted(argv)
        words = [*options, "--", *arguments] if arguments else options
        parsed, surplus = self.parse_known_args(words)
        if surplus := [word for word in surplus if word != "--"]:
            plural = "s" if len(surplus) > 1 else ""
            self.error(f"unexpected argument{plural} {', '.join(map(repr, surplus))}")
        return parsed

    def options(self) -> list[str]:
        """The options that the help shows, such as `--json` and `-n`."""
        return [
            name
            for name, action in self._option_string_actions.items()
            if action.help != argparse.SUPPRESS
        ]

    def actions(self) -> list[argparse.Action]:
        """All options and arguments."""
        return list(self._actions)

    def _sorted(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        options: list[str] = []
        arguments: list[str] = []
        parts = iter(argv)
        for part in parts:
            if part == "--":
                arguments += parts
            elif not part.startswith("-") or part == "-" or _NEGATIVE_NUMBER.fullmatch(part):
                arguments.append(part)
            else:
                setting = next(parts, None) if self._needs_value(part) else None
                options += self._joined(part, setting)
        return options, arguments

    def _joined(self, part: str, setting: str | None) -> list[str]:
        """The option and its value, as one word where argparse would take `-5ms` for an option."""
        if setting is None:
            return [part]
        is_option = {setting, setting[:2]} & self._option_string_actions.keys()
        if is_option or setting == "-" or not setting.startswith("-"):
            return [part, setting]
        return [f"{part}={setting}" if part.startswith("--") else f"{part}{setting}"]

    def _needs_value(self, part: str) -> bool:
        """Whether the value of the option is the next part of the command line."""
        if part.startswith("--"):
            name, equals, _ = part.partition("=")
            return self._takes_value(name) and not equals
        for position, letter in enumerate(part[1:], start=2):  # -fn5 is -f -n 5
            if self._takes_value(f"-{letter}"):
                return position == len(part)
        return False

    def _takes_value(self, name: str) -> bool:
        action = self._option_string_actions.get(name)
        if action is None:
            owner = self._owner(name)
            fix = f". Fix: Remove {name}, or use `penstock {owner}`, which has it." if owner else ""
            self.error(f"unknown option {name}{fix or suggestion(name, self.options())}")
        return action.nargs is None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As in argparse, with a suggestion."""
        if action.choices is not None and value not in action.choices:
            message = not_a_choice(str(value), [str(choice) for choice in action.choices])
            raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> NoReturn:
        """Print the error with only the arguments of the usage, as all options fill a screen for
        some commands."""
        missing = message.partition("are required: ")[2].split(", ")
        message += "".join(f". Fix: {self.fixes[name]}" for name in missing if name in self.fixes)
        words = [self.prog, *map(_usage_name, self._get_positional_actions())]
        for action in self._get_optional_actions():
            words += [f"{action.option_strings[0]} {_name(action)}"] if action.required else []
        usage = " ".join((*words, "[OPTIONS]"))
        self.exit(2, f"{self.prog}: {message}\nUsage: {usage}. See `{self.prog} --help`.\n")


def add_switch(parser: argparse._ActionsContainer, flag: str, purpose: str) -> None:
    """An option without a value."""
    parser.add_argument(flag, action="store_true", help=purpose)


def _usage_name(action: argparse.Action) -> str:
    """An argument as the usage names it: `GRAPH`, `[NAME]`, `POOL=N...`."""
    name = _name(action) + ("..." if action.nargs in ("+", "*") else "")
    return f"[{name}]" if action.nargs in ("?", "*") else name


def _name(action: argparse.Action) -> str:
    return "|".join(map(str, action.choices)) if action.choices else str(action.metavar)


def suggestion(word: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """`did_you_mean`, to append to a message."""
    from penstock.text.names import did_you_mean

    fix = did_you_mean(word, names, cutoff)
    return f". {fix}" if fix else ""


def not_a_choice(word: str, choices: Sequence[str]) -> str:
    """That ``word`` is none of the choices, with a suggestion if one is similar."""
    from penstock.text.names import CHOICE_CUTOFF

    near = suggestion(word, choices, CHOICE_CUTOFF)
    return f"{word!r} is not one of {', '.join(choices)}{near}"
