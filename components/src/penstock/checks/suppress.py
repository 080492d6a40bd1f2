"""Suppressions: `checks.suppress` of a graph, and comments in graphs and manifests.

replicas: 1  # penstock: ignore PS810 a test cluster has one node
# penstock: ignore-file PS803,PS805 the platform team decides this
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from penstock.checks.finding import Finding
from penstock.checks.registry import all_rules, by_id
from penstock.errors import Problem
from penstock.strict_yaml.loader import SafeLoader
from penstock.text.names import nearest

UNUSED = "PS005"
# A file that cannot be read or understood is always reported.
ALWAYS = ("PS001", "PS002", "PS003", "PS004")
DIRECTIVES = ("ignore", "ignore-file")
COMMENT = re.compile(r"(?:^|(?<=\s))#\s*penstock:\s*(?P<word>[\w-]+)(?P<rest>.*)$")
RULE_LIST = re.compile(r"\s+(?P<rules>[A-Z]+\d{3,}(?:\s*,\s*[A-Z]+\d{3,})*)(?P<reason>(?:\s.*)?)$")
EXAMPLE = "Write `# penstock: ignore PS810 REASON`."


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """One rule, or group of rules, that a comment or an entry of `checks.suppress` suppresses."""

    rule: str
    reason: str
    # Where it is written.
    line: int | None
    column: int | None
    place: str = ""
    # The line to which it applies; None for the whole file.
    applies_to: int | None = None

    def covers(self, finding: Finding) -> bool:
        ids = (finding.rule, by_id(finding.rule).group)
        return self.rule in ids and self.applies_to in (None, finding.line)


def read_comments(text: str) -> tuple[list[Suppression], list[Problem]]:
    """The suppressions in the comments of a text, and the problems of comments that are meant to
    be one.

    A comment after a value applies to its line. A comment on a line of its own applies to the next
    line that has more than a comment.
    """
    suppressions: list[Suppression] = []
    broken: list[Problem] = []
    lines = text.splitlines()
    for number, column, match in _comments(text, lines):
        reasons = _read(match)
        if isinstance(reasons, tuple):
            if reasons != ("", ""):
                message, fix = reasons
                broken.append(Problem(line=number, column=column, message=message, fix=fix))
            continue
        applies_to = None if match["word"] == "ignore-file" else _line_below(lines, number, column)
        suppressions += [
            Suppression(rule=rule, reason=reason, applies_to=applies_to, line=number, column=column)
            for rule, reason in reasons.items()
        ]
    return suppressions, broken


def _read(match: re.Match[str]) -> Mapping[str, str] | tuple[str, str]:
    """Rule → reason, or what is wrong with the comment, or ("", "") for an ordinary comment."""
    word, rest = match["word"], match["rest"]
    if word not in DIRECTIVES:
        close = nearest(word, DIRECTIVES)
        return (f"`penstock: {word}` is unknown", f"Did you mean `{close}`?") if close else ("", "")
    listed = RULE_LIST.match(rest)
    if listed is None:
        return f"`penstock: {word}` names no rule", EXAMPLE
    if not listed["reason"].strip():
        return f"the comment gives no reason for suppressing {listed['rules']}", EXAMPLE
    rules = re.split(r"\s*,\s*", listed["rules"])
    return dict.fromkeys(rules, listed["reason"].strip())


def _line_below(lines: Sequence[str], number: int, column: int) -> int:
    """The line to which a comment on line ``number`` applies."""
    if lines[number - 1][: column - 1].strip():
        return number
    while number < len(lines) and lines[number].lstrip().startswith("#"):
        number += 1
    return number + 1


def _comments(text: str, lines: Sequence[str]) -> Iterator[tuple[int, int, re.Match[str]]]:
    """Line, column and match of each comment. Those in block scalars count: they are comments of
    the engine's file or the script. Inside quotes there are none."""
    if "penstock:" not in text:
        return
    quoted = list(_quoted_ranges(text))
    for number, line in enumerate(lines, 1):
        match = COMMENT.search(line) if "penstock:" in line else None
        if match is not None:
            at = (number - 1, match.start())
            if not any(start <= at < end for start, end in quoted):
                yield number, match.start() + 1, match


def _quoted_ranges(text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """(line, column) of the beginning and the end of each quoted text, from 0."""
    try:
        for event in yaml.parse(text, Loader=SafeLoader):
            if isinstance(event, yaml.ScalarEvent) and event.style in ("'", '"'):
                start, end = event.start_mark, event.end_mark
                if start is not None and end is not None:
                    yield (start.line, start.column), (end.line, end.column)
    except (yaml.YAMLError, UnicodeEncodeError):
        return  # a finding of its own


def suppressed(
    findings: Iterable[Finding], suppressions: Sequence[Suppression]
) -> tuple[list[Finding], set[Suppression]]:
    """The findings with the reasons of the suppressions, and the suppressions that were used."""
    result, used = [], set()
    for finding in findings:
        covering = [suppression for suppression in suppressions if suppression.covers(finding)]
        used |= set(covering)
        is_suppressed = covering and finding.rule not in ALWAYS
        reason = covering[0].reason if is_suppressed else finding.suppressed
        result.append(replace(finding, suppressed=reason))
    return result, used


def unused(suppressions: Iterable[Suppression], used: set[Suppression]) -> Iterator[Problem]:
    """An unused suppression would hide the next finding of its rule."""
    known = {name for rule in all_rules() for name in (rule.id, rule.group)}
    for suppression in suppressions:
        if suppression in used and suppression.rule in known and suppression.rule not in ALWAYS:
            continue
        message = f"{suppression.rule} has no finding {_where(suppression)}"
        if suppression.rule not in known:
            message = f"there is no rule {suppression.rule}"
        elif suppression.rule in ALWAYS:
            message = f"{suppression.rule} cannot be suppressed"
        place = suppression.place
        fix = f"Remove `{place}`." if place else f"Remove {suppression.rule} from the comment."
        line, column = suppression.line, suppression.column
        yield Problem(line=line, column=column, place=place, message=message, fix=fix)


def _where(suppression: Suppression) -> str:
    if suppression.applies_to is None:
        return "here"
    is_here = suppression.applies_to == suppression.line
    return "on this line" if is_here else f"on line {suppression.applies_to}"
