"""Each rule reports its case and does not report the near miss."""

from __future__ import annotations

import pytest

from penstock.checks.finding import Finding
from penstock.checks.merge import merged as with_one_cause
from penstock.checks.registry import FOLDER, RULES
from penstock.checks.rows.load import facts_in
from penstock.checks.rows.rule_rows import facts_of, python_of
from penstock.checks.rule import Rule
from penstock.strict_yaml.loader import load
from tests.checks.all_cases import cases
from tests.checks.paste import is_pasteable, pasted_graph, pasted_manifest
from tests.checks.support import BASES, Case, by_rule, check, graph, is_graph, loud, manifest

# Reported while a file is read, before there is a deployment; tested in test_check.py.
READ = ("PS001", "PS002", "PS003", "PS004")
OF_FILES = {"PS001", "PS005", "PS006"}
WITH_CASES = [rule for rule in RULES if rule.id not in OF_FILES]


def fired(case: Case, text: str) -> bool:
    return any(f.rule == case.rule for f in check(text, gpu=case.gpu, only=case.rule))


@pytest.mark.parametrize("rule", by_rule(WITH_CASES))
def test_the_rule_fires_for_each_case_and_not_for_its_near_miss(rule: Rule) -> None:
    for number, case in enumerate(cases()[rule.id]):
        is_reported = fired(case, case.bad)
        assert is_reported, f"{rule.id} does not report the bad file of case {number}:\n{case.bad}"
        is_silent = not fired(case, case.near)
        assert is_silent, f"{rule.id} reports the near file of case {number}:\n{case.near}"


@pytest.mark.slow
@pytest.mark.parametrize("rule", by_rule(WITH_CASES))
def test_the_pasted_fix_removes_the_finding(rule: Rule) -> None:
    """YAML for a graph is pasted into the graph, and YAML for a manifest into the manifest."""
    for number, case in enumerate(cases()[rule.id]):
        of_graph = is_graph(case.bad)
        findings = [f for f in merged_findings(case) if f.rule == rule.id and f.yaml]
        if not findings or not is_pasteable(findings, is_graph=of_graph):
            continue
        pasted = (pasted_graph if of_graph else pasted_manifest)(case.bad, findings)
        left = check(pasted, gpu=case.gpu, only=rule.id)
        assert not [f for f in left if f.rule in (rule.id, *READ)], (number, findings[0].yaml)


def test_every_rule_has_a_case() -> None:
    assert {rule.id for rule in RULES} - OF_FILES <= set(cases())


def test_there_are_at_least_sixty_rules_with_a_source() -> None:
    assert len(RULES) >= 60
    for rule in RULES:
        assert all((rule.title, rule.cause, rule.effect, rule.remedy, rule.source)), rule.id


def test_every_fact_in_an_expression_exists() -> None:
    for path in sorted(FOLDER.glob("*/rules.yaml")):
        text = path.read_text("utf-8")
        python_of(text, str(path), facts_in(facts_of(load(text))))


def test_ids_are_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", BASES)
def test_the_bases_of_the_cases_are_sound(name: str) -> None:
    assert loud(graph(BASES[name])) == []
    assert loud(manifest(BASES[name])) == []


def merged_findings(case: Case) -> tuple[Finding, ...]:
    """As `penstock check` prints them: one YAML for all components that have the cause."""
    return with_one_cause(check(case.bad, gpu=case.gpu, only=case.rule))
