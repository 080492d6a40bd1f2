"""The result of `penstock check` for people: one line for each finding, or with its fix."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.checks.find_files import SkippedFile
from penstock.checks.finding import Finding, Level, Tally, tally
from penstock.checks.registry import all_rules, by_id, members_of
from penstock.checks.rule import Rule
from penstock.checks.suppress import ALWAYS
from penstock.text.numbers import counted
from penstock.text.terminal import Style, fitted, painter

COLOR: dict[Level, Style] = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "cyan"}
# Most findings without a summary by rule.
FEW = 5
# Most skipped files that one line names.
FEW_SKIPPED = 3

Paint = Callable[[str, Style], str]


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What one run reports."""

    # In the order of the files; findings with the same cause are one.
    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    # Other YAML files in folders.
    skipped: tuple[SkippedFile, ...] = ()
    # Number of findings that the baseline has, and of its entries that no finding has.
    accepted: int = 0
    stale: int = 0


def by_level(findings: Sequence[Finding]) -> list[Finding]:
    """Errors, warnings, notes, then the suppressed; within a level by rule."""
    levels = list(Level)
    return sorted(findings, key=lambda f: (bool(f.suppressed), levels.index(f.level), f.rule))


def print_text(report: CheckReport, *, is_full: bool = False, is_quiet: bool = False) -> None:
    """Print the findings and, unless ``is_quiet``, a summary if there are many and the counts."""
    paint = painter(sys.stdout)
    findings = by_level(report.findings)
    for finding in findings:
        print(_painted(finding, paint, is_full=is_full))
        for line in _details(finding) if is_full else ():
            is_yaml = line.startswith(" ")  # which is copied
            print(*([f"    {line}"] if is_yaml else fitted(f"    {line}", 9)), sep="\n")
    if is_quiet:
        return
    counted = [finding for finding in findings if not finding.suppressed]
    if len(counted) > FEW:
        print("", *_summary(counted, paint), "", sep="\n")
    for line in (*_skipped(report.skipped, is_full=is_full), *_totals(report)):
        print(*fitted(line), sep="\n")
    if counted and not is_full:
        print("Add --full for reasons and fixes, or --explain PSnnn for a rule.")


def position(finding: Finding) -> str:
    """`FILE:LINE:COLUMN`, as far as it is known, and the --set argument."""
    parts = [finding.file, *(str(n) for n in (finding.line, finding.column) if n is not None)]
    return ":".join(parts) + (f" --set {finding.override}" if finding.override else "")


def subject(finding: Finding) -> str:
    """What the finding is about: the components that have it, or the place."""
    if finding.also:
        return ", ".join(dict.fromkeys(place.component for place in finding.places))
    return finding.subject or finding.place


def _painted(finding: Finding, paint: Paint, *, is_full: bool) -> str:
    """`one_line` in lines that fit the terminal, with colors."""
    text = "\n".join(fitted(one_line(finding, is_full=is_full), 4))
    start = len(position(finding))  # a path may contain the same words
    about = text[start:].replace(finding.rule, paint(finding.rule, "bold"), 1)
    word = _word(finding)
    return text[:start] + about.replace(word, paint(word, COLOR[finding.level]), 1)


def _word(finding: Finding) -> str:
    return "suppressed" if finding.suppressed else str(finding.level)


def one_line(finding: Finding, *, is_full: bool = False) -> str:
    """`graph.yaml:8:5 PS124 error prefill: …`"""
    about = finding.place if is_full and not finding.also else subject(finding)
    if finding.message.startswith(f"{about} "):
        about = ""  # the message begins with it
    more = f" ({finding.suppressed})" if finding.suppressed else ""
    if finding.rule in ALWAYS and finding.level is Level.ERROR and finding.fix and not is_full:
        more = f". {finding.fix}"  # a name that was meant, mostly
    return (
        f"{position(finding)} {finding.rule} {_word(finding)} "
        f"{f'{about}: ' if about else ''}{finding.message}{more}"
    )


def _details(finding: Finding) -> Iterator[str]:
    for place in finding.places if finding.also else ():
        where = ":".join(str(n) for n in (place.line, place.column) if n is not None)
        override = f"--set {place.override}" if place.override else ""
        yield " ".join(
            part for part in (f"{place.component}:", where, override, place.place) if part
        )
    if finding.suppressed:
        return
    yield f"why: {finding.why}"
    yield f"fix: {finding.fix}"
    for line in finding.yaml.splitlines():
        yield f"  {line}"


def _summary(findings: Sequence[Finding], paint: Paint) -> Iterator[str]:
    """A table: rule, level, count and title."""
    width = max(7, *(len(finding.rule) + 2 for finding in findings))
    yield paint(f"{'RULE':<{width}}{'LEVEL':<9}{'COUNT':>5}  TITLE", "bold")
    for (rule, level), count in Counter((f.rule, f.level) for f in findings).items():
        word = paint(str(level), COLOR[level]) + " " * (9 - len(level))
        yield f"{rule:<{width}}{word}{count:>5}  {by_id(rule).title}"


def _skipped(skipped: Sequence[SkippedFile], *, is_full: bool) -> Iterator[str]:
    """The names of skipped files: each with its reason, or the first on one line."""
    if is_full or len(skipped) == 1:
        yield from (f"skipped {file.path}: {file.reason}" for file in skipped)
        return
    if skipped:
        names = [f"{file.path} ({file.reason})" for file in skipped[:FEW_SKIPPED]]
        more = len(skipped) - FEW_SKIPPED
        names += [f"{more} more (--full lists all)"] if more > 0 else []
        yield f"skipped {', '.join(names)}"


def _totals(report: CheckReport) -> Iterator[str]:
    yield counts_line(report)
    if report.stale:
        entries = "1 entry" if report.stale == 1 else f"{report.stale} entries"
        yield f"The baseline has {entries} without a finding. Renew it with --write-baseline."


def counts_line(report: CheckReport) -> str:
    """`2 files: 1 error, 0 warnings, 3 notes`"""
    counts: Tally = tally(report.findings)
    parts = [
        counted(counts.errors, "error"),
        counted(counts.warnings, "warning"),
        counted(counts.notes, "note"),
    ]
    if counts.suppressed:
        parts.append(f"{counts.suppressed} suppressed")
    if report.accepted:
        parts.append(f"{report.accepted} in the baseline")
    text = f"{counted(len(report.files), 'file')}: {', '.join(parts)}"
    if not report.skipped:
        return text
    return f"{text}; skipped {counted(len(report.skipped), 'other YAML file')}"


def rule_lines() -> Iterator[str]:
    """The id, the level and the title of each rule."""
    for rule in all_rules():
        yield _rule_line(rule)


def _rule_line(rule: Rule) -> str:
    return f"{rule.id:<7}  {rule.level:<7}  {rule.title}"


def explain(rule_id: str) -> str:
    """The documentation of a rule, or the rules of a group."""
    if members := members_of(rule_id):
        title = members[0].group_title
        return "\n".join([f"{rule_id} (group): {title}", "", *map(_rule_line, members)])
    rule = by_id(rule_id)
    levels = " or ".join(map(str, (rule.level, *rule.other_levels)))
    lines = [f"{rule.id} ({levels}): {rule.title}", ""]
    texts = {
        "Cause": rule.cause,
        "Effect": rule.effect,
        "Example": rule.example,
        "Fix": rule.remedy,
        "Except": rule.exceptions,
        "Source": rule.source,
        "Group": rule.group,
    }
    lines += [f"{f'{name}:':<8} {text}" for name, text in texts.items() if text]
    lines.append(f"Verified for: {rule.versions.text()}")
    return "\n".join(lines)
