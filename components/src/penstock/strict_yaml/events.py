"""YAML text → libyaml's events, in which duplicates, anchors and tags are still visible."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from penstock.errors import GraphError, Problem
from penstock.strict_yaml.aliases import TOO_MANY_ALIASED, WRITE_OUT, AliasCount
from penstock.strict_yaml.kind import Dialect, DocumentKind
from penstock.strict_yaml.loader import SafeLoader
from penstock.strict_yaml.places import Position, looks_secret
from penstock.strict_yaml.syntax_hints import syntax_hint

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
        column = _indentation(text.splitlines()[hint.line]) + 1
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


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


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
