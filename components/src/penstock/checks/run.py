"""Apply every rule to every deployment of a file; findings are in the order of the file.

`penstock check` calls `check_file`; `up` calls `check_source` on a source that it has opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.checks.apply_versions import VersionFilter
from penstock.checks.files import CheckedFile, checked_file
from penstock.checks.finding import Finding, Fix, Level, RuleResult
from penstock.checks.registry import RULES, by_id
from penstock.checks.rule import Rule
from penstock.engines.settings import Location
from penstock.errors import ChartError, CheckError, GraphError, InputError, ManifestError, Problem
from penstock.manifests.source import Source, open_sources
from penstock.serving.deployment import ServingDeployment
from penstock.serving.understand import Hints, understand

READ_ERRORS = {
    InputError: "PS001",
    GraphError: "PS002",
    ChartError: "PS003",
    ManifestError: "PS004",
}


def check_file(path: Path, hints: Hints, sets: Sequence[str] = ()) -> tuple[Finding, ...]:
    """All findings of a graph or a manifest; a file that cannot be read is a finding too."""
    try:
        sources = open_sources(path, sets)
    except (InputError, GraphError, ChartError, ManifestError) as error:
        rule = by_id(READ_ERRORS[type(error)])
        return tuple(_read_error(rule, problem, path) for problem in error.problems)
    return tuple(finding for source in sources for finding in check_source(source, hints))


def check_source(source: Source, hints: Hints) -> tuple[Finding, ...]:
    """The findings of one deployment, by line."""
    deployment = understand(source, hints)
    file = checked_file(source)
    name = source.deployment.source
    versions = VersionFilter(deployment)
    unique = dict.fromkeys(
        _finding(reported, result, file, name)
        for rule in RULES
        for reported, result in _results(rule, deployment, versions)
    )
    suppressed = file.suppressions
    findings = [replace(f, suppressed=suppressed.get(f.rule, "")) for f in unique]
    unused = _unused_suppressions(file, name, {finding.rule for finding in unique})
    return tuple(sorted((*findings, *unused), key=_order))


def _results(
    rule: Rule, deployment: ServingDeployment, versions: VersionFilter
) -> Iterator[tuple[Rule, RuleResult]]:
    """The rule's results that apply to the images. A manifest may have a list where Kubernetes
    expects a string, and the rule then raises: that is a finding of PS006, never an ignored error.
    """
    try:
        for result in rule.check(deployment):
            if (applied := versions.apply(rule, result)) is not None:
                yield rule, applied
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"{rule.id} ({rule.title}) could not be checked: {error}"
        fix = Fix(text="Give every field the type that the CRD has.")
        yield (
            by_id("PS006"),
            RuleResult(location=Location("", "manifest", ("spec",)), message=message, fix=fix),
        )


def _order(finding: Finding) -> tuple[Any, ...]:
    return (finding.line is None, finding.line or 0, finding.rule, finding.place)


def _read_error(rule: Rule, problem: Problem, path: Path) -> Finding:
    return Finding(
        rule=rule.id,
        level=Level.ERROR,
        file=problem.file or str(path),
        line=problem.line,
        place=problem.place,
        message=problem.message,
        why=rule.effect,
        fix=problem.fix,
    )


def _finding(rule: Rule, result: RuleResult, file: CheckedFile, name: str) -> Finding:
    place = file.locate(result.location)
    fix = file.adapt(result.fix, result.location)
    return Finding(
        rule=rule.id,
        level=result.level or rule.level,
        file=name,
        line=place.line,
        place=place.path,
        message=result.message,
        why=result.why or rule.effect,
        fix=fix.text,
        yaml=file.paste(fix, result.location),
        replaces=fix.replaces,
        override=place.override,
    )


def _unused_suppressions(file: CheckedFile, name: str, found: set[str]) -> Iterator[Finding]:
    """An unused suppression would hide the next finding of its rule."""
    rule = by_id("PS005")
    known = {known.id for known in RULES}
    for suppressed in file.suppressions:
        if suppressed in known and suppressed in found:
            continue
        place = file.locate(Location("", "graph", ("checks", "suppress", suppressed)))
        yield Finding(
            rule=rule.id,
            level=rule.level,
            file=name,
            line=place.line,
            place=place.path,
            message=f"{suppressed} has no finding here"
            if suppressed in known
            else f"there is no rule {suppressed}",
            why=rule.effect,
            fix=f"Remove `{place.path}`.",
        )


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Number of findings at each level, without the suppressed ones."""

    errors: int
    warnings: int
    notes: int
    suppressed: int


def tally(findings: Sequence[Finding]) -> Tally:
    levels = [finding.level for finding in findings if not finding.suppressed]
    return Tally(
        errors=levels.count(Level.ERROR),
        warnings=levels.count(Level.WARNING),
        notes=levels.count(Level.NOTE),
        suppressed=len(findings) - len(levels),
    )


# Rules about what is pulled and where it is installed, which do not matter to `penstock up`.
OF_IMAGES = ("PS901", "PS902", "PS903", "PS904", "PS905", "PS906", "PS909")


def require_sound(
    source: Source, refused: Sequence[str] = (), ignored: Collection[str] = ()
) -> tuple[str, ...]:
    """Raise CheckError for findings that `penstock check` reports as errors.

    ``refused``: rules whose warnings count as errors here; ``ignored``: rules that do not count.
    Returns a line with the number of warnings, if there are any.
    """
    found = [f for f in check_source(source, Hints()) if not f.suppressed]
    findings = [f for f in found if f.rule not in ignored]
    if errors := [f for f in findings if f.level is Level.ERROR or f.rule in refused]:
        raise CheckError(*(_problem(finding) for finding in errors))
    warnings = sum(f.level is Level.WARNING for f in findings)
    if not warnings:
        return ()
    noun = "warning" if warnings == 1 else "warnings"
    return (f"{warnings} {noun} from `penstock check {source.deployment.source}`",)


def _problem(finding: Finding) -> Problem:
    return Problem(
        file=finding.file,
        line=finding.line,
        place=finding.place,
        message=f"{finding.rule}: {finding.message}",
        fix=f"{finding.fix} To deploy anyway, add --skip-check.",
    )
