"""The example of each rule's page: a file that violates the rule, and its repair.

It is the rule's first case, or the one with ``is_example``. The repair is what the case states, or
else the YAML of the fix pasted in, or else the file before the change, or else the near miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import yaml

from penstock.checks.finding import Finding
from penstock.checks.merge import merged
from tests.checks.all_cases import cases
from tests.checks.excerpt import POOLS
from tests.checks.literal_examples import LITERAL
from tests.checks.paste import is_pasteable, pasted_graph, pasted_manifest
from tests.checks.shows import SHOWS
from tests.checks.support import LOADER, Case, base_of, check, dump, is_graph


@dataclass(frozen=True, kw_only=True)
class Example:
    """``bad`` and ``fixed`` are complete files."""

    rule: str
    bad: str
    fixed: str
    gpu: str | None
    # Of the rule, in `bad`.
    findings: tuple[Finding, ...]
    # Rules that `bad` violates as well and `fixed` does not.
    also: tuple[str, ...]
    shows: tuple[str, ...]  # see shows.py


@cache
def example_cases() -> Mapping[str, Case]:
    """Rule id → its case."""
    chosen = {
        rule: next((case for case in rule_cases if case.is_example), rule_cases[0])
        for rule, rule_cases in cases().items()
    }
    return {**LITERAL, **chosen}


@cache
def example_of(case: Case) -> Example:
    findings = merged(check(case.bad, gpu=case.gpu))
    findings = tuple(finding for finding in findings if finding.rule == case.rule)
    return Example(
        rule=case.rule,
        bad=case.bad,
        fixed=case.fixed or _repaired(case, findings),
        gpu=case.gpu,
        findings=findings,
        also=case.also,
        shows=SHOWS.get(case.rule, ()),
    )


def _repaired(case: Case, findings: tuple[Finding, ...]) -> str:
    if case.is_repaired_by_near:
        return case.near
    of_graph = is_graph(case.bad)
    if is_pasteable(findings, is_graph=of_graph):
        if of_graph:
            return pasted_graph(case.bad, [_in_one_place(finding) for finding in findings])
        return pasted_manifest(case.bad, findings)
    return base_of(case.bad) or case.near


def _in_one_place(finding: Finding) -> Finding:
    """The fix of a setting of all pools: where the setting is, instead of in each pool."""
    tree = yaml.load(finding.yaml, LOADER)
    first, *rest = tree.values()
    is_same = set(tree) <= set(POOLS) and all(other == first for other in rest)
    if not (finding.place.startswith("engine.") and is_same and set(first) <= {"config", "env"}):
        return finding
    return replace(finding, yaml=dump({"engine": first}))
