"""Findings of a file with invalid parts: those that do not depend on the invalid parts.

A graph is checked with several valid values in their place, a manifest with its placeholders filled
in several ways, and with and without the components that have other problems. A finding is reported
only if every one of these checks has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, TypeVar

from penstock.checks.finding import Finding
from penstock.errors import ChartError, GraphError, ManifestError, Problem
from penstock.graph.foreign import COMPONENTS
from penstock.graph.load import GraphDraft, load_draft, name_problems, read_draft, valid_name
from penstock.graph.repair import MOST_CHOICES, Choice, Remove, Set, apply, choices, opaque_owner
from penstock.manifests.placeholders import TURNS, filled
from penstock.manifests.read import Manifest, read_all
from penstock.manifests.source import Source, rendered_source
from penstock.strict_yaml.places import is_within, parent_of

# More than a person makes in one edit: the file is probably something else.
MOST_PLACES = 30
MOST_ROUNDS = 10
# Places of a manifest that may have any text. Where others have a placeholder (an argument, the
# name of a variable or volume, a resource), nothing can be said about the component.
FREE = re.compile(
    r"^metadata\.|\.image$|\.value$|\.namespace$|\.claimName$|\.secretName$|\.envFromSecret$"
    r"|\.imagePullSecrets\[\d+\]\.name$"
)

# They compare the object with the CRD, and do not depend on what is read from it.
OF_OBJECT = ("PS768", "PS779")

Check = Callable[[Source], Sequence[Finding]]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Incomplete:
    """What can be decided about a file with invalid parts."""

    # Further problems, which do not depend on those that were already known.
    problems: tuple[Problem, ...] = ()
    # None if no rule could be checked.
    findings: tuple[Finding, ...] | None = None
    # The invalid places or components that were left out.
    left_out: tuple[str, ...] = ()


def incomplete_graph(
    text: str, source: str, sets: Sequence[str], problems: Sequence[Problem], check: Check
) -> Incomplete:
    """Check a graph in spite of ``problems``, which its loader or the chart raised."""
    try:
        draft = read_draft(text, source, sets)
    except GraphError:
        return Incomplete()
    places = tuple(dict.fromkeys(problem.place for problem in problems if problem.place))
    unplaced = [p for p in problems if not p.place and p not in name_problems(source)]
    if unplaced or len(places) > MOST_PLACES:
        return Incomplete()
    # As many checks as the place with the most choices has.
    counts = [len(choices(dict(draft.renamed.values), place)) for place in places]
    turns = min(MOST_CHOICES, max(counts, default=1))
    repairs = [_Repair(draft, turn) for turn in range(turns)]
    results = [repair.run(places) for repair in repairs]
    sound = [result for result in results if result is not None]
    left_out = tuple(dict.fromkeys(place for repair in repairs for place in repair.removed))
    known = {(problem.place, problem.message) for problem in problems}
    later = _in_all([repair.later for repair in repairs], _problem_key)
    further = [p for p in later if _problem_key(p) not in known and not _depends(p.place, places)]
    is_invented = 1 == len(sound) < len(repairs) and any(repair.invents for repair in repairs)
    if not sound or is_invented:
        return Incomplete(problems=tuple(further))
    owners = {opaque_owner(dict(draft.renamed.values), place) for place in places} - {None}
    findings = [
        finding
        for finding in _common(sound, check)
        if not _depends(finding.place, (*places, *left_out)) and not _runs_in(finding, owners)
    ]
    return Incomplete(problems=tuple(further), findings=tuple(findings), left_out=places)


def incomplete_manifest(
    text: str, source: str, problems: Sequence[Problem], check: Check
) -> Incomplete:
    """Check the deployments of a manifest in spite of ``problems``: with its placeholders filled,
    and for other problems without the components that have them."""
    lines = [p.line for p in problems if p.line is not None and FREE.search(p.place)]
    texts = dict.fromkeys(filled(text, lines, turn) for turn in range(TURNS))
    readings = [_reading(text, source) for text in texts]
    if None in readings:
        return Incomplete()
    known = [reading for reading in readings if reading is not None]
    broken = {name for _, names in known for name in names}
    by_deployment = zip(*(manifests for manifests, _ in known), strict=True)
    findings = [
        finding
        for manifests in by_deployment
        for finding in _common(list(_sources(manifests, broken, text)), check)
    ]
    words = re.compile(
        "|".join(rf"\b{re.escape(name)}\b" for name in sorted(broken)) or r"(?!)", re.IGNORECASE
    )
    places = [problem.place for problem in problems]
    # A finding about a variable is at its entry, not at its value.
    entries = [parent_of(place) for place in places if place.endswith(".value")]
    kept = [
        finding
        for finding in findings
        if not _depends(finding.place, (*places, *entries))
        and (
            finding.rule in OF_OBJECT
            or (finding.component not in broken and not words.search(_text_of(finding)))
        )
    ]
    return Incomplete(findings=tuple(kept), left_out=tuple(dict.fromkeys(places)))


def _reading(text: str, source: str) -> tuple[tuple[Manifest, ...], set[str]] | None:
    """The deployments of a text, and the components that have problems; None if a deployment lacks
    components, or a problem is not in a component."""
    manifests, problems = read_all(text, source)
    broken: set[str] = set()
    for problem in problems:
        names = {name for m in manifests for name in m.pods if _is_in(problem, m, name)}
        if not names and not is_within(problem.place, "metadata"):
            return None
        broken |= names
    if not manifests or any(_lacks_components(manifest) for manifest in manifests):
        return None
    return manifests, broken


def _sources(manifests: Sequence[Manifest], broken: set[str], text: str) -> Iterator[Source]:
    """Each reading of a deployment, with and without its broken components."""
    for manifest in manifests:
        yield Source(manifest=manifest, text=text, loaded=None)
        if broken:
            yield Source(manifest=_without(manifest, broken), text=text, loaded=None)


@dataclass
class _Repair:
    """One way to make the graph valid: every invalid value gets its choice number ``turn``."""

    draft: GraphDraft
    turn: int
    # Places without their value.
    removed: list[str] = field(default_factory=list)
    # Whether a value was made up: one that is valid proves nothing about the others.
    invents: bool = False
    # Problems that appeared after the known ones were solved.
    later: list[Problem] = field(default_factory=list)
    # Place → what to leave out if it still has a problem.
    _next: dict[str, str] = field(default_factory=dict)

    def run(self, places: Sequence[str]) -> Source | None:
        """The rendered graph; None if it cannot be made valid."""
        values: dict[str, Any] = dict(self.draft.renamed.values)
        for _ in range(MOST_ROUNDS):
            for place in reversed(places):  # removing an item of a list moves those after it
                edited = self._edited(values, place)
                if edited is None:
                    return None
                values = edited
            renamed = replace(self.draft.renamed, values=values)
            draft = replace(self.draft, renamed=renamed, problems=())
            try:
                return rendered_source(load_draft(draft, _name(draft.source)))
            except (GraphError, ChartError) as error:
                self.later += [p for p in error.problems if not _depends(p.place, self.removed)]
                places = tuple(dict.fromkeys(problem.place for problem in error.problems))
            except ManifestError:
                return None
        return None

    def _edited(self, values: dict[str, Any], place: str) -> dict[str, Any] | None:
        """The values with the next choice at a place: its own, none, and none of its section."""
        if place not in self._next:
            possible = choices(values, place)
            self._next[place] = place if possible else parent_of(place)
            if possible:
                return self._chosen(values, place, possible[self.turn % len(possible)])
        target = self._next[place]
        self._next[place] = parent_of(target)
        return self._chosen(values, target, Remove()) if target else None

    def _chosen(self, values: dict[str, Any], place: str, choice: Choice) -> dict[str, Any]:
        if isinstance(choice, Remove):
            self.removed.append(place)
        self.invents |= isinstance(choice, Set)
        return apply(values, place, choice)


def _runs_in(finding: Finding, owners: Collection[str | None]) -> bool:
    """Whether a finding is about a component whose section is in ``owners``; `engine` is that of
    every pool, and the empty one is the graph."""
    if {"", "engine"} & set(owners):
        return bool(finding.component) or finding.place.partition(".")[0] in COMPONENTS
    text = f"{finding.place} {finding.component} {_text_of(finding)}"
    return any(re.search(rf"\b{owner}\b", text) for owner in owners)


def _name(source: str) -> str:
    """The deployment's name: a valid one, if that of the file is invalid."""
    stem = PurePath(source).stem
    return valid_name(stem) if name_problems(source) else stem


def _depends(place: str, other_places: Iterable[str]) -> bool:
    return any(is_within(place, other) for other in other_places)


def _problem_key(problem: Problem) -> tuple[Any, ...]:
    return problem.place, problem.message


def _finding_key(finding: Finding) -> tuple[Any, ...]:
    return (*finding.places, finding.rule, finding.level, finding.message)


def _common(sources: Sequence[Source], check: Check) -> list[Finding]:
    """The findings that every source has."""
    findings = [check(source) for source in sources]
    return _in_all(findings, _finding_key)


def _in_all(lists: Sequence[Sequence[T]], key: Callable[[T], tuple[Any, ...]]) -> list[T]:
    """The items of the first list that all others have too."""
    first, *other_lists = lists or [[]]
    keys = [{key(item) for item in items} for items in other_lists]
    unique = {key(item): item for item in first}
    return [item for name, item in unique.items() if all(name in each for each in keys)]


def _is_in(problem: Problem, manifest: Manifest, name: str) -> bool:
    top = manifest.pods[name].cursor.place
    return bool(problem.place) and is_within(problem.place, top)


def _lacks_components(manifest: Manifest) -> bool:
    """Whether a component of the text was too incomplete to be read."""
    spec = manifest.root["spec"]
    listed = spec["components"].value or spec["services"].value
    return not isinstance(listed, (list, dict)) or len(listed) != len(manifest.pods)


def _without(manifest: Manifest, names: set[str]) -> Manifest:
    deployment = manifest.deployment
    components = tuple(c for c in deployment.components if c.name not in names)
    pods = {name: pod for name, pod in manifest.pods.items() if name not in names}
    return replace(manifest, deployment=replace(deployment, components=components), pods=pods)


def _text_of(finding: Finding) -> str:
    return f"{finding.message} {finding.why} {finding.fix}"
