"""Apply every rule to every deployment of a file; findings are in the order of the file.

`penstock check` calls `check_file`; `up` calls `require_sound` on a source that it has opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checks.apply_versions import VersionFilter
from penstock.checks.files import CheckedFile, checked_file
from penstock.checks.finding import Finding, Fix, Level, RuleResult
from penstock.checks.merge import merged
from penstock.checks.registry import all_rules, by_id
from penstock.checks.rule import Rule
from penstock.checks.rules.versions.placeholders import (
    LEVELS,
    REASONS,
    about_placeholders,
    by_kind,
    fix_of,
)
from penstock.checks.suppress import UNUSED, Suppression, read_comments, suppressed, unused
from penstock.engines.settings import Location
from penstock.errors import (
    ChartError,
    CheckError,
    GraphError,
    InputError,
    ManifestError,
    PenstockError,
    Problem,
    ProblemKind,
)
from penstock.graph.text_file import read_text_file
from penstock.manifests.placeholders import UNFILLED
from penstock.manifests.read import placeholders_of
from penstock.manifests.source import MOST_BYTES, Source, is_manifest, sources_of
from penstock.serving.deployment import ServingDeployment
from penstock.serving.understand import Hints, understand
from penstock.text.commands import command

if TYPE_CHECKING:
    from penstock.checks.engine_dry_run import Engines
    from penstock.checks.incomplete import Incomplete

FEW = 3  # places that a note lists
NOTHING_TO_READ = (
    "`penstock check` reads graphs and DynamoGraphDeployments, so nothing in this file was checked."
)
UNDECIDED = "Rules that depend on it are not checked."
# Its findings are dropped where a more precise rule reports the same value.
BY_SCHEMA = "PS779"
PROBLEM_LEVELS = {ProblemKind.UNDECIDED: Level.NOTE, ProblemKind.REPEATED: Level.WARNING}
READ_ERRORS = {
    InputError: "PS001",
    GraphError: "PS002",
    ChartError: "PS003",
    ManifestError: "PS004",
}


Shown = Callable[[str], bool]


def always(_: str) -> bool:
    return True


class RuleError(Exception):
    """A rule raised an exception: a bug in penstock, exit code 70."""

    def __init__(self, rule: Rule, file: str, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"
        super().__init__(f"{rule.id} ({rule.title}) cannot be evaluated for {file}: {cause}")


def check_file(
    path: Path,
    hints: Hints,
    sets: Sequence[str] = (),
    rules: Sequence[Rule] | None = None,
    engines: Engines | None = None,
    is_shown: Shown = always,
) -> tuple[Finding, ...]:
    """All findings of a graph or a manifest; a file that cannot be read is a finding too.

    ``rules``: those to apply; None: all. ``engines``: to ask the engines' own code
    too; ``shown``: whether the findings of a rule, by its id, are reported.
    """
    try:
        text = _read(path)
    except InputError as error:
        return tuple(_read_error(problem, path, error) for problem in error.problems)
    try:
        sources = sources_of(text, str(path), sets)
    except (GraphError, ChartError, ManifestError) as error:
        return _invalid_file(text, path, hints, sets, error, rules)
    return check_sources(sources, hints, rules, engines, is_shown)


def _read(path: Path) -> str:
    if not path.is_dir():
        return read_text_file(path, MOST_BYTES)
    fix = "Name a file or a folder that has one. Files of Helm charts are checked once rendered."
    message = "the folder contains no graph and no manifest"
    raise InputError(message, file=str(path), fix=fix)


def check_source(source: Source, hints: Hints) -> tuple[Finding, ...]:
    """The findings of one deployment, by line."""
    return check_sources((source,), hints)


def check_sources(
    sources: Sequence[Source],
    hints: Hints,
    rules: Sequence[Rule] | None = None,
    engines: Engines | None = None,
    is_shown: Shown = always,
) -> tuple[Finding, ...]:
    """The findings of all deployments of one file, by line."""
    name = sources[0].deployment.source
    off: dict[str, str] = {}
    findings = [
        finding
        for source in sources
        for finding in _check(source, hints, rules, off, engines, is_shown)
    ]
    findings += _about_rules_that_are_off(off, name, rules)
    first = sources[0]
    comments, broken = read_comments(first.text if first.loaded is None else first.loaded.text)
    of_graphs = (suppression for source in sources for suppression in _of_graph(source))
    suppressions = [*comments, *of_graphs]
    findings, used = suppressed(findings, suppressions)
    rule = by_id(UNUSED)
    of_comments = (
        _of_file(problem, Path(name), rule, rule.level)
        for problem in (*unused(suppressions, used), *broken)
    )
    return tuple(sorted((*findings, *of_comments), key=_order))


def _check(
    source: Source,
    hints: Hints,
    rules: Sequence[Rule] | None,
    off: dict[str, str],
    engines: Engines | None = None,
    is_shown: Shown = always,
) -> list[Finding]:
    """The findings of one deployment, before suppression. ``off`` gets the rules that found what
    only later versions than that of the image have, and these versions."""
    deployment = understand(source, hints)
    file = checked_file(source)
    name = source.deployment.source
    versions = VersionFilter(deployment, off)
    # PS911 is about the others, also those that are not selected.
    selected = None if rules is None else {rule.id for rule in rules}
    findings = dict.fromkeys(
        _finding(reported, result, file, name)
        for rule in (all_rules() if selected is None or "PS911" in selected else rules or ())
        for reported, result in _results(rule, deployment, versions)
        if selected is None or rule.id in selected
    )
    precise = {f.place for f in findings if f.level is Level.ERROR and f.rule != BY_SCHEMA}
    kept = [f for f in findings if f.rule != BY_SCHEMA or f.place not in precise]
    if engines is not None:
        from penstock.checks.engine_dry_run import new_results

        kept += dict.fromkeys(
            _finding(rule, result, file, name)
            for rule, result in new_results(deployment, engines, file, kept, is_shown)
            if rules is None or rule in rules
        )
    return kept


def _about_rules_that_are_off(
    off: Mapping[str, str], name: str, rules: Sequence[Rule] | None
) -> Iterator[Finding]:
    rule = by_id("PS911")
    if off and (rules is None or rule in rules):
        listed = ", ".join(f"{id_} ({versions})" for id_, versions in sorted(off.items()))
        subject = "1 rule concerns" if len(off) == 1 else f"{len(off)} rules concern"
        message = f"{subject} only later versions than that of the image: {listed}"
        yield _of_file(Problem(message=message, fix=rule.remedy), Path(name), rule, rule.level, "")


def _of_graph(source: Source) -> Iterator[Suppression]:
    """The entries of `checks.suppress`."""
    file = checked_file(source)
    for rule, reason in file.suppressions.items():
        place = file.locate(Location("", "graph", ("checks", "suppress", rule)))
        yield Suppression(
            rule=rule, reason=reason, line=place.line, column=place.column, place=place.path
        )


def _invalid_file(
    text: str,
    path: Path,
    hints: Hints,
    sets: Sequence[str],
    error: PenstockError,
    rules: Sequence[Rule] | None,
) -> tuple[Finding, ...]:
    """The problems of a file that cannot be deployed, and what else can be decided about it."""
    if any(problem.kind is ProblemKind.NOTHING_TO_READ for problem in error.problems):
        return tuple(_read_error(problem, path, error) for problem in error.problems)
    # It imports the graph model, which a valid manifest does not need.
    from penstock.checks.incomplete import Incomplete, incomplete_graph, incomplete_manifest

    off: dict[str, str] = {}

    def check(source: Source) -> list[Finding]:
        return suppressed(_check(source, hints, rules, off), list(_of_graph(source)))[0]

    if isinstance(error, ManifestError) and not is_manifest(text):
        rest = Incomplete()
    elif is_manifest(text):
        rest = incomplete_manifest(text, str(path), error.problems, check)
    else:
        rest = incomplete_graph(text, str(path), sets, error.problems, check)
    problems = [
        _read_error(problem, path, error)
        for problem in (*error.problems, *rest.problems)
        if problem.kind not in UNFILLED
    ]
    findings = list(rest.findings or ())
    kinds = {problem.kind for problem in error.problems}
    if kinds & UNFILLED:
        placeholders = _placeholders(text, path)
        replaced = {"PS909"}
        if any(f.level is Level.NOTE for f in placeholders):
            replaced.add("PS149")  # what fills the placeholders fills $MODEL in a script, too
        kept = (f for f in findings if f.rule not in replaced or f.level is Level.WARNING)
        findings = [*kept, *placeholders]
    findings += _about_rules_that_are_off(off, str(path), rules)
    findings, _ = suppressed((*problems, *findings), read_comments(text)[0])
    return tuple(sorted((*findings, _about(rest, path, error)), key=_order))


def _placeholders(text: str, path: Path) -> list[Finding]:
    """What PS909 reports of a manifest that cannot be read with its placeholders."""
    unfilled = (
        (placeholder.cursor, placeholder.text) for placeholder in placeholders_of(text, str(path))
    )
    findings = []
    for kind, placed in by_kind(unfilled).items():
        first, _ = placed[0]
        line, column = first.position or (None, None)
        problem = Problem(
            line=line,
            column=column,
            place=first.place,
            message=about_placeholders(kind, [text for _, text in placed]),
            fix=fix_of(kind, [text for _, text in placed]),
        )
        findings.append(
            _of_file(problem, path, by_id("PS909"), LEVELS[kind], REASONS.get(kind, ""))
        )
    return findings


def _about(rest: Incomplete, path: Path, error: PenstockError) -> Finding:
    """A note: what was not checked because of the errors."""
    if rest.findings is None:
        message = "the other rules were not checked, because the file has errors"
    else:
        places = [f"`{place}`" for place in rest.left_out[:FEW] if place]
        more = len(rest.left_out) - FEW
        places += [f"{more} more"] if more > 0 else []
        about = ", ".join(places) or "these errors"
        message = f"findings that depend on {about} are not reported"
    note = Problem(message=message, fix="Correct the errors, and check the file again.")
    return _read_error(note, path, error, Level.NOTE)


def _results(
    rule: Rule, deployment: ServingDeployment, versions: VersionFilter
) -> Iterator[tuple[Rule, RuleResult]]:
    """The rule's results that apply to the images.

    Raises RuleError for an error of the rule itself, which is never a finding about the file.
    """
    try:
        for result in rule.check(deployment):
            if (applied := versions.apply(rule, result)) is not None:
                yield rule, applied
    except Exception as error:
        if rule.origin:
            yield rule, _broken_rule(rule, error)
            return
        raise RuleError(rule, deployment.dgd.source, error) from error


def _broken_rule(rule: Rule, error: Exception) -> RuleResult:
    """A user's rule that raised an exception: the other rules still count."""
    return RuleResult(
        location=Location("", "manifest", ("metadata", "name")),
        message=f"the rule cannot be evaluated: {type(error).__name__}: {error}",
        fix=Fix(text=f"Correct the rule in {rule.origin}."),
        level=Level.ERROR,
        why="The rule does not decide about this deployment.",
    )


def _order(finding: Finding) -> tuple[Any, ...]:
    return (
        finding.line is None,
        finding.line or 0,
        finding.level is Level.NOTE and finding.rule in READ_ERRORS.values(),
        finding.rule,
        finding.place,
    )


def _read_error(
    problem: Problem, path: Path, error: PenstockError, level: Level | None = None
) -> Finding:
    if problem.kind is ProblemKind.NOTHING_TO_READ:
        return _of_file(problem, path, by_id("PS001"), Level.ERROR, NOTHING_TO_READ)
    chosen = level or PROBLEM_LEVELS.get(problem.kind, Level.ERROR)
    why = UNDECIDED if chosen is Level.NOTE else ""
    return _of_file(problem, path, by_id(READ_ERRORS[type(error)]), chosen, why)


def _of_file(problem: Problem, path: Path, rule: Rule, level: Level, why: str = "") -> Finding:
    """``why``: the consequence, if it differs from the rule's effect."""
    return Finding(
        rule=rule.id,
        level=level,
        file=problem.file or str(path),
        line=problem.line,
        column=problem.column,
        place=problem.place,
        message=problem.message,
        why=why or rule.effect,
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
        column=place.column,
        place=place.path,
        message=result.message,
        why=result.why or rule.effect,
        fix=fix.text,
        yaml=file.paste(fix, result.location),
        replaces=fix.replaces,
        override=place.override,
        component=result.location.component,
        subject=place.subject,
    )


# Rules about what is pulled, mounted and where it is installed, which do not matter to
# `penstock up`.
ONLY_ON_A_CLUSTER = (
    *("PS901", "PS902", "PS903", "PS904", "PS905", "PS906", "PS909"),
    *("PS723", "PS724", "PS725", "PS726"),
)


def require_sound(
    source: Source, refused: Sequence[str] = (), ignored: Collection[str] = ()
) -> tuple[str, ...]:
    """Raise CheckError for findings that `penstock check` reports as errors.

    ``refused``: rules whose warnings count as errors here; ``ignored``: rules that do not count.
    Returns a line with the number of warnings, if there are any.
    """
    findings = [
        finding
        for finding in merged(check_source(source, Hints()))
        if not finding.suppressed and finding.rule not in ignored
    ]
    if errors := [f for f in findings if f.level is Level.ERROR or f.rule in refused]:
        raise CheckError(*(_problem(finding) for finding in errors))
    warnings = sum(f.level is Level.WARNING for f in findings)
    if not warnings:
        return ()
    noun = "warning" if warnings == 1 else "warnings"
    return (f"{warnings} {noun} from {command('check', source.deployment.source)}",)


def _problem(finding: Finding) -> Problem:
    return Problem(
        file=finding.file,
        line=finding.line,
        place=finding.place,
        message=f"{finding.rule}: {finding.message}",
        fix=f"{finding.fix} To deploy anyway, add --skip-check.",
    )
