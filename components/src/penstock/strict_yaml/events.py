"""YAML text → libyaml's events, in which duplicates, anchors and tags are still visible; the likely
cause of a syntax error."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from penstock.errors import GraphError, Problem
from penstock.strict_yaml.kind import Dialect, DocumentKind
from penstock.strict_yaml.loader import TOO_MANY_ALIASED, WRITE_OUT, AliasCount, SafeLoader
from penstock.strict_yaml.places import Position, looks_secret

LONGEST_EXCERPT = 100


def events(text: str, source: str, kind: DocumentKind) -> Iterator[yaml.Event]:
    """Events of every document in the text; GraphError with the line of a syntax error, or of the
    alias with which the aliases stand for too many values."""
    aliases = AliasCount()
    try:
        for event in yaml.parse(text, Loader=SafeLoader):
            is_few = aliases.add(event) or kind.dialect is Dialect.STRICT
            if not is_few and isinstance(event, yaml.AliasEvent):
                raise GraphError(_alias_problem(event, source))
            yield event
    except yaml.MarkedYAMLError as error:
        raise GraphError(_syntax_problem(error, text, source, kind)) from error
    except yaml.reader.ReaderError as error:
        raise GraphError(_character_problem(error, text, source)) from error
    except UnicodeEncodeError as error:
        problem = Problem(file=source, message=f"not a Unicode text: {error.reason}")
        raise GraphError(problem) from error


def position_of_event(event: yaml.Event) -> Position:
    """Where an event begins."""
    mark = event.start_mark
    return Position(int(mark.line) + 1, int(mark.column) + 1) if mark else Position(1, 1)


def explicit_tag(event: yaml.Event) -> str | None:
    """The tag written in the text, such as `!!str`; None without one."""
    if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag:
        return str(event.tag).replace("tag:yaml.org,2002:", "!!")
    return None


def _syntax_problem(
    error: yaml.MarkedYAMLError, text: str, source: str, kind: DocumentKind
) -> Problem:
    if hint := syntax_hint(error, text):
        message = f"not valid YAML{_quoted(text, hint.line, kind)}: {hint.message}"
        broken = text.splitlines()[hint.line]
        column = len(broken) - len(broken.lstrip()) + 1
        return Problem(
            file=source, line=hint.line + 1, column=column, message=message, fix=hint.fix
        )
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    broken = lines[line] if line < len(lines) else ""
    detail = ", ".join(part for part in (error.context, error.problem) if part)
    excerpt = _excerpt(broken) if kind.may_quote_lines else ""
    return Problem(
        file=source,
        line=line + 1,
        column=column + 1,
        message=f"not valid YAML at column {column + 1}{excerpt}: {detail}",
        fix=_syntax_fix(broken, column, kind),
    )


def _quoted(text: str, line: int, kind: DocumentKind) -> str:
    excerpt = _excerpt(text.splitlines()[line]) if kind.may_quote_lines else ""
    return excerpt.replace(" of ", " in ", 1)


def _excerpt(line: str) -> str:
    """The broken line, unless it may hold a secret, is very long or is empty."""
    is_secret = looks_secret(line.partition(":")[0].strip())
    if not line.strip() or len(line) > LONGEST_EXCERPT or is_secret:
        return ""
    return f" of `{line.strip()}`"


def _syntax_fix(line: str, column: int, kind: DocumentKind) -> str:
    if line.startswith("%"):
        return "Remove the line: directives such as %YAML have no effect."
    if "\t" in line[: column + 1]:
        return "Indent with spaces; YAML allows no tabs there."
    if line[column : column + 1] in ("@", "`", "%"):
        return "Quote the value."
    if ": " in line[column:]:
        return "Quote a value that contains ': ', and check the indentation."
    if kind.dialect is Dialect.KUBERNETES:
        return "Correct the syntax on this line; if the file is a template, render it first."
    return "Check indentation, quotes and brackets on this line and the line above."


def _alias_problem(event: yaml.AliasEvent, source: str) -> Problem:
    line, column = position_of_event(event)
    return Problem(
        file=source,
        line=line,
        column=column,
        message=f"*{event.anchor}: {TOO_MANY_ALIASED}",
        fix=WRITE_OUT,
    )


def _character_problem(error: yaml.reader.ReaderError, text: str, source: str) -> Problem:
    at = error.position
    return Problem(
        file=source,
        line=text.count("\n", 0, at) + 1,
        column=at - text.rfind("\n", 0, at),
        message=f"not valid YAML: character {text[at : at + 1]!a} is not allowed",
        fix=r'Remove it, or write it escaped in double quotes, such as "\x07".',
    )


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
    indentation = _spaces(lines[at])
    if any(level == indentation for level, _ in levels):
        return None
    # Of equally near levels the deepest: that of the lines just above.
    level, first = min(reversed(levels), key=lambda item: abs(item[0] - indentation))
    by = abs(level - indentation)
    message = (
        f"indented by {_count(indentation)}, but line {first + 1} of the same section by {level}"
    )
    more = "more" if level > indentation else "less"
    fix = f"Indent {_section(lines, at, level)} by {_count(by)} {more}."
    return Hint(line=at, message=message, fix=fix)


def _section(lines: list[str], at: int, level: int) -> str:
    """The lines that must move to ``level`` together: the line, and those below it that are
    indented as far or deeper."""
    indentation, last = _spaces(lines[at]), at
    for number in range(at + 1, len(lines)):
        if _is_content(lines[number]):
            if _spaces(lines[number]) < indentation or _spaces(lines[number]) == level:
                break
            last = number
    return f"line {at + 1}" if last == at else f"lines {at + 1} to {last + 1}"


def _count(spaces: int) -> str:
    return f"{spaces} space" if spaces == 1 else f"{spaces} spaces"
