"""Each rule reports its case and does not report the near miss."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.checks import rules
from penstock.checks.finding import Finding
from penstock.checks.merge import merged as with_one_cause
from penstock.checks.registry import RULES
from tests.checks.all_cases import CASES, FIRST_CASES
from tests.checks.paste import is_pasteable, pasted_graph, pasted_manifest
from tests.checks.support import BASES, Case, check, fired, graph, is_graph, loud, manifest

# Reported while a file is read, before there is a deployment; tested in test_check.py.
READ = ("PS001", "PS002", "PS003")
OF_FILES = {"PS001", "PS005", "PS006"}


def by_rule(cases: Iterable[Case]) -> list[pytest.ParameterSet]:
    """One worker runs all tests of a rule, as `check` caches what it has checked."""
    group = pytest.mark.xdist_group
    return [pytest.param(case, id=case.rule, marks=group(case.rule)) for case in cases]


OTHER_CASES = [case for case in CASES if case is not FIRST_CASES[case.rule]]


@pytest.mark.parametrize("case", by_rule(FIRST_CASES.values()))
def test_the_rule_fires(case: Case) -> None:
    assert case.rule in fired(case.bad, gpu=case.gpu)


@pytest.mark.slow
@pytest.mark.parametrize("case", by_rule(OTHER_CASES))
def test_the_rule_fires_in_other_cases(case: Case) -> None:
    assert case.rule in fired(case.bad, gpu=case.gpu)


@pytest.mark.slow
@pytest.mark.parametrize("case", by_rule(CASES))
def test_the_near_miss_has_no_finding(case: Case) -> None:
    assert case.rule not in fired(case.near, gpu=case.gpu)


def test_every_rule_has_a_case() -> None:
    assert {rule.id for rule in RULES} - OF_FILES <= {case.rule for case in CASES}


def test_there_are_at_least_sixty_rules_with_a_source() -> None:
    assert len(RULES) >= 60
    for rule in RULES:
        assert all((rule.title, rule.cause, rule.effect, rule.remedy, rule.source)), rule.id


def test_every_rule_in_a_module_is_registered() -> None:
    folder = Path(rules.__file__).parent
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    declared = re.findall(r'^    id="(PS\d{3})",$', text, flags=re.MULTILINE)
    assert sorted(declared) == [rule.id for rule in RULES]


def test_ids_are_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", BASES)
def test_the_bases_of_the_cases_are_sound(name: str) -> None:
    assert loud(graph(BASES[name])) == []
    assert loud(manifest(BASES[name])) == []


def merged_findings(case: Case) -> tuple[Finding, ...]:
    """As `penstock check` prints them: one YAML for all components that have the cause."""
    return with_one_cause(check(case.bad, gpu=case.gpu))


@pytest.mark.slow
@pytest.mark.parametrize("case", by_rule(c for c in CASES if is_graph(c.bad)))
def test_the_pasted_fix_removes_the_finding(case: Case) -> None:
    findings = [f for f in merged_findings(case) if f.rule == case.rule and f.yaml]
    if not findings:
        pytest.skip("the fix has no YAML to paste")
    text = pasted_graph(case.bad, findings)
    left = [f for f in check(text, gpu=case.gpu) if f.rule in (case.rule, *READ)]
    assert not left, findings[0].yaml


@pytest.mark.slow
@pytest.mark.parametrize("case", by_rule(c for c in CASES if "apiVersion:" in c.bad))
def test_the_fix_pasted_into_a_manifest_removes_the_finding(case: Case) -> None:
    findings = [f for f in merged_findings(case) if f.rule == case.rule and f.yaml]
    if not is_pasteable(findings, is_graph=False):
        pytest.skip("the fix has no YAML to paste")
    text = pasted_manifest(case.bad, findings)
    left = [f for f in check(text, gpu=case.gpu) if f.rule in (case.rule, "PS001", "PS004")]
    assert not left, findings[0].yaml
