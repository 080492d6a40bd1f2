"""Every rule over every deployment of a file: files in, findings out, in the order of the file.

`penstock check` calls `check_file`; `up` asks `check_source` about what it has opened already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.checks.finding import Finding, Fix, Level, RuleResult
from penstock.checks.fix import to_paste
from penstock.checks.locate import locate
from penstock.checks.registry import RULES, by_id
from penstock.checks.rule import Rule
from penstock.checks.settle import settled
from penstock.engines.settings import Location
from penstock.errors import ChartError, CheckError, GraphError, InputError, ManifestError, Problem
from penstock.manifests.source import Source, open_sources
from penstock.serving.deployment import ServingDeployment
from penstock.serving.understand import Hints, understand

REFUSED = {
    InputError: "PS001",
    GraphError: "PS002",
    ChartError: "PS003",
    ManifestError: "PS004",
}


def check_file(path: Path, hints: Hints, sets: Sequence[str] = ()) -> tuple[Finding, ...]:
    """All findings of a graph or a manifest; what cannot be read is a finding too."""
    try:
        sources = open_sources(path, sets)
    except (InputError, GraphError, ChartError, ManifestError) as error:
        rule = by_id(REFUSED[type(error)])
        return tuple(_refusal(rule, problem, path) for problem in error.problems)
    return tuple(finding for source in sources for finding in check_source(source, hints))


def check_source(source: Source, hints: Hints) -> tuple[Finding, ...]:
    """The findings of one deployment, by line."""
    deployment = understand(source, hints)
    found = [_finding(r, f, source) for rule in RULES for r, f in _checked(rule, deployment)]
    silence = _silence(source)
    unique = dict.fromkeys(found)
    silenced = (replace(f, silenced=silence.get(f.rule, "")) for f in unique)
    return tuple(sorted((*silenced, *_idle_silence(source, unique)), key=_order))


def _checked(rule: Rule, deployment: ServingDeployment) -> Iterator[tuple[Rule, RuleResult]]:
    """What the rule finds. A manifest may hold a list where Kubernetes has a word: that the rule
    stumbles over it is then a finding itself, and never silence."""
    try:
        for found in rule.check(deployment):
            yield rule, found
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"{rule.id} ({rule.title}) could not be checked: {error}"
        fix = Fix(text="give every field the type that the CRD has")
        yield (
            by_id("PS006"),
            RuleResult(location=Location("", "manifest", ("spec",)), message=message, fix=fix),
        )


def _order(finding: Finding) -> tuple[Any, ...]:
    return (finding.line is None, finding.line or 0, finding.rule, finding.place)


def _refusal(rule: Rule, problem: Problem, path: Path) -> Finding:
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


def _finding(rule: Rule, found: RuleResult, source: Source) -> Finding:
    place = locate(found.location, source.manifest, source.loaded)
    is_graph = source.loaded is not None
    fix = settled(found.fix, found.location, source.manifest, is_graph=is_graph)
    return Finding(
        rule=rule.id,
        level=found.level or rule.level,
        file=source.deployment.source,
        line=place.line,
        place=place.path,
        message=found.message,
        why=found.why or rule.effect,
        fix=fix.text,
        yaml=to_paste(fix, found.location, source.manifest, place.path if is_graph else None),
        override=place.override,
    )


def _silence(source: Source) -> dict[str, str]:
    """Rule → why the graph lives with it."""
    loaded = source.loaded
    return dict(loaded.graph.checks.suppress) if loaded else {}


def _idle_silence(source: Source, found: dict[Finding, None]) -> Iterator[Finding]:
    """A silence that silences nothing hides the next finding of its rule."""
    rule = by_id("PS005")
    fired = {finding.rule for finding in found}
    loaded = source.loaded
    for silenced in loaded.graph.checks.suppress if loaded else ():
        place = f"checks.suppress.{silenced}"
        is_known = any(silenced == known.id for known in RULES)
        if is_known and silenced in fired:
            continue
        yield Finding(
            rule=rule.id,
            level=rule.level,
            file=source.deployment.source,
            line=loaded.places.line_of(place) if loaded else None,
            place=place,
            message=f"{silenced} finds nothing here" if is_known else "no such rule",
            why=rule.effect,
            fix="remove it",
        )


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many findings count at each level; silenced ones apart."""

    errors: int
    warnings: int
    notes: int
    silenced: int


def tally(findings: Sequence[Finding]) -> Tally:
    levels = [finding.level for finding in findings if not finding.silenced]
    return Tally(
        errors=levels.count(Level.ERROR),
        warnings=levels.count(Level.WARNING),
        notes=levels.count(Level.NOTE),
        silenced=len(findings) - len(levels),
    )


def require_sound(source: Source, refused: Sequence[str] = ()) -> tuple[str, ...]:
    """Refuse what `penstock check` calls an error; a line that counts the warnings, if any.

    ``refused``: rules whose warnings are errors where it is asked.
    """
    findings = [f for f in check_source(source, Hints()) if not f.silenced]
    if errors := [f for f in findings if f.level is Level.ERROR or f.rule in refused]:
        raise CheckError(
            *(
                Problem(
                    file=f.file,
                    line=f.line,
                    place=f.place,
                    message=f"{f.rule}: {f.message}",
                    fix=f"{f.fix}; or --skip-check",
                )
                for f in errors
            )
        )
    warnings = sum(f.level is Level.WARNING for f in findings)
    if not warnings:
        return ()
    noun = "warning" if warnings == 1 else "warnings"
    return (f"{warnings} {noun} of `penstock check {source.deployment.source}`",)
