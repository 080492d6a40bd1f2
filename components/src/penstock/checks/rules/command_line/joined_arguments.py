"""The rule about a flag and its value in one argument."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.command_line.given_flags import all_launches
from penstock.engines.flags import FlagTable
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment

# A flag, then spaces or an equal sign with spaces, then the rest; or a space before a flag.
JOINED = re.compile(
    r"\s*(--[A-Za-z][\w.-]*)(?:\s*=\s+|\s+=\s*|\s+)(.*)|\s+(--[A-Za-z]\S*)", re.DOTALL
)


def flag_and_value_in_one(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name, launch, table in all_launches(deployment):
        words = tuple(joined(table, launch.arguments))
        indented = [word for word, _ in words if word[0].isspace()]
        if launch.shell and len(indented) > 1:
            yield _folded_script(name, indented)
            continue
        for word, flag in words:
            items = _split(word)
            listed = " and ".join(items) if len(items) == 2 else ", ".join(items)
            yield RuleResult(
                location=Location(name, "args", (word.partition("=")[0],)),
                message=f"{word!r} is one argument that contains a space",
                fix=Fix(
                    text=f"Write {len(items)} items: {listed}."
                    if len(items) > 1
                    else f"Write {flag} without the space.",
                    args=items,
                    replaces=word,
                ),
            )


def _folded_script(component: str, words: Sequence[str]) -> RuleResult:
    """The result for a script whose lines `>-` joined, so that each backslash escapes a space."""
    return RuleResult(
        location=Location(component, "args", (words[0],)),
        message=f"{len(words)} arguments begin with a space, such as {words[0]!r}: in the "
        "script, a backslash precedes a space instead of the end of a line",
        fix=Fix(text="Write the script as a `|` block instead of `>`, which joins its lines."),
    )


def joined(table: FlagTable, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each argument that is a flag with a space, and its flag; not the value of another flag."""
    for before, word in zip(("", *arguments), arguments, strict=False):
        found = JOINED.fullmatch(word)
        flag = table.find(before) if before.startswith("-") else None
        if found is not None and (flag is None or flag.takes == "none"):
            yield word, found[1] or found[3].partition("=")[0]


def _split(word: str) -> tuple[str, ...]:
    """The arguments into which a shell splits the text, without a `=` between flag and value."""
    text = re.sub(r"^(\s*--[\w.-]+)\s*=\s*", r"\1 ", word)
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an unclosed quote
        return tuple(text.split(maxsplit=1))
