"""The likely mistake behind a YAML syntax error, whose own message names a consequence of it."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

import yaml

from penstock.strict_yaml.loader import SafeLoader

CONFLICT = re.compile(r"(<{7}|={7}|>{7}|\|{7})( |$)")
TEMPLATE = re.compile(r"\{\{|\{%")
VARIABLE = re.compile(r"\$(\{\w+\}|\w+)")
NO_SPACE = re.compile(r"\s*(- )?[\w.-]+:[^\s:/]\S*\s*(#.*)?$")
DASH = re.compile(r"\s*([–—−•‐‑])\s")
WORD = re.compile(r"\s*(\w+|\[\w+\])\s*")
ENTRY = re.compile(r"\s*(- )?[\w.\"'/-]+:(\s|$)")
SECTION = re.compile(r"\s*(- )?[\w.\"'/-]+:\s*(#.*)?$")


@dataclass(frozen=True, kw_only=True)
class Hint:
    """The cause of a syntax error, in the line that must be changed."""

    line: int  # from 0
    message: str
    fix: str


def syntax_hint(error: yaml.MarkedYAMLError, text: str) -> Hint | None:
    """The mistake, if it is one that can be recognized."""
    lines = text.splitlines()
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return None
    at = min(mark.line, len(lines) - 1)
    first = (
        _marker(lines) or _open_quote(error) or _late_quote(text, lines, at) or _list_item(error)
    )
    return first or _no_colon(error, lines) or _of_line(lines, at)


def _no_colon(error: yaml.MarkedYAMLError, lines: list[str]) -> Hint | None:
    if error.context_mark is None or "expected ':'" not in (error.problem or ""):
        return None
    at = error.context_mark.line
    if at >= len(lines) or not WORD.fullmatch(lines[at]):
        return None
    # The word may be a secret: the caller decides whether it quotes the line.
    message, fix = "the line has no colon", "Write a colon after the key, without brackets."
    return Hint(line=at, message=message, fix=fix)


def _list_item(error: yaml.MarkedYAMLError) -> Hint | None:
    """A mapping that continues a list."""
    if error.context_mark is None or "'-' indicator" not in (error.problem or ""):
        return None
    message = "the section begins as a list (`- `) and continues with keys"
    fix = "Remove the `- `, or begin each item of the list with it."
    return Hint(line=error.context_mark.line, message=message, fix=fix)


def _marker(lines: list[str]) -> Hint | None:
    for number, line in enumerate(lines):
        if CONFLICT.match(line):
            message = "a merge conflict marker of Git is not YAML"
            return Hint(line=number, message=message, fix="Resolve the conflict in this file.")
    return None


def _open_quote(error: yaml.MarkedYAMLError) -> Hint | None:
    if error.context_mark is None or "unexpected end of stream" not in (error.problem or ""):
        return None
    if "quoted scalar" not in (error.context or ""):
        return None
    return _not_closed(error.context_mark)


def _late_quote(text: str, lines: list[str], at: int) -> Hint | None:
    """A quote that the opening quote of a later value closes, in the line of the error."""
    with contextlib.suppress(yaml.YAMLError):
        for token in yaml.scan(text, SafeLoader):
            start, end = token.start_mark, token.end_mark
            if not isinstance(token, yaml.ScalarToken) or token.style not in ("'", '"'):
                continue
            if end.line == at and any(map(ENTRY.match, lines[start.line + 1 : at + 1])):
                return _not_closed(start)
    return None


def _not_closed(opening: yaml.Mark) -> Hint:
    message = f"the quote that opens at column {opening.column + 1} is not closed"
    return Hint(line=opening.line, message=message, fix="Close it on the same line.")


def _of_line(lines: list[str], at: int) -> Hint | None:
    line = lines[at]
    if TEMPLATE.search(line):
        message = "this is a template, not YAML"
        fix = "Render the template first, for example with `helm template`, and check the output."
        return Hint(line=at, message=message, fix=fix)
    if (dash := DASH.match(line)) or (at > 0 and (dash := DASH.match(lines[at - 1]))):
        message = f"`{dash[1]}` is not the hyphen that begins an item of a list"
        where = at if DASH.match(line) else at - 1
        return Hint(line=where, message=message, fix="Begin the item with `- `.")
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        message = "the line is indented with a tab, which YAML does not allow"
        return Hint(line=at, message=message, fix="Replace each tab with two spaces.")
    above = next((n for n in range(at - 1, -1, -1) if _is_content(lines[n])), None)
    if above is not None and NO_SPACE.match(lines[above]) and not ENTRY.match(lines[above]):
        key = lines[above].strip().partition(":")[0]
        if variable := VARIABLE.search(lines[above]):
            message = f"the variable {variable[0]} is not filled in"
            return Hint(line=above, message=message, fix=f"Fill in {variable[0]}.")
        message = f"`{key}:` has no space after the colon"
        return Hint(line=above, message=message, fix=f"Write a space after `{key}:`.")
    if above is not None and not re.match(r"\s*- ", lines[above]) and not ENTRY.match(lines[above]):
        return None
    return _indentation(lines, at, above) if ENTRY.match(line) else None


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _spaces(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _indentation(lines: list[str], at: int, above: int | None) -> Hint | None:
    """By how many spaces the line must move to be in line with an open section."""
    if above is None:
        return None
    levels: list[tuple[int, int]] = []  # indentation and first line of each open section
    for number in range(above + 1):
        if not _is_content(lines[number]):
            continue
        here = _spaces(lines[number])
        while levels and levels[-1][0] > here:
            levels.pop()
        if not levels or levels[-1][0] < here:
            levels.append((here, number))
    own = _spaces(lines[at])
    if any(level == own for level, _ in levels):
        return None
    # Of equally near levels the deepest: that of the lines just above.
    level, first = min(reversed(levels), key=lambda item: abs(item[0] - own))
    by = abs(level - own)
    message = f"indented by {_count(own)}, but line {first + 1} of the same section by {level}"
    more = "more" if level > own else "less"
    fix = f"Indent {_section(lines, at, level)} by {_count(by)} {more}."
    return Hint(line=at, message=message, fix=fix)


def _section(lines: list[str], at: int, level: int) -> str:
    """The lines that must move to ``level`` together: the line, and those below it that are
    indented as far or deeper."""
    own, last = _spaces(lines[at]), at
    for number in range(at + 1, len(lines)):
        if _is_content(lines[number]):
            if _spaces(lines[number]) < own or _spaces(lines[number]) == level:
                break
            last = number
    return f"line {at + 1}" if last == at else f"lines {at + 1} to {last + 1}"


def _count(spaces: int) -> str:
    return f"{spaces} space" if spaces == 1 else f"{spaces} spaces"
