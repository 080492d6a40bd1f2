"""Each rule fires on its case and stays silent on the near miss."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock.checks.finding import Finding
from penstock.checks.rules import RULES
from tests.checks import cases_cluster, cases_engine, cases_memory, cases_pools
from tests.checks.support import BASES, Case, check, fired, graph, loud, manifest

CASES: tuple[Case, ...] = (
    *cases_engine.CASES,
    *cases_pools.CASES,
    *cases_memory.CASES,
    *cases_cluster.CASES,
)
# Reported while a file is read, before there is a deployment: test_check.py has them.
READ = ("PS001", "PS002", "PS003")
OF_FILES = {"PS001", "PS005", "PS006"}


def is_graph(text: str) -> bool:
    return "apiVersion:" not in text and "\nmodel:" in f"\n{text}"


def named(case: Case) -> str:
    return case.rule


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_rule_fires(case: Case) -> None:
    assert case.rule in fired(case.bad, gpu=case.gpu)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_near_miss_is_silent(case: Case) -> None:
    assert case.rule not in fired(case.near, gpu=case.gpu)


def test_every_rule_has_a_case() -> None:
    assert {rule.id for rule in RULES} - OF_FILES <= {case.rule for case in CASES}


def test_there_are_at_least_sixty_rules_with_a_source() -> None:
    assert len(RULES) >= 60
    for rule in RULES:
        assert all((rule.title, rule.cause, rule.effect, rule.remedy, rule.source)), rule.id


def test_ids_are_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", BASES)
def test_what_the_cases_start_from_is_sound(name: str) -> None:
    assert loud(graph(BASES[name])) == []
    assert loud(manifest(BASES[name])) == []


def merged(value: Any, fix: Any) -> Any:
    """The fix pasted into what is there: mappings merge, null removes, flags are added."""
    if isinstance(value, dict) and isinstance(fix, dict):
        both = {**value, **{k: merged(value.get(k), v) for k, v in fix.items()}}
        return {key: item for key, item in both.items() if item is not None}
    if isinstance(value, list) and isinstance(fix, list) and str(fix[0]).startswith("--"):
        return value + fix
    return fix


def without(value: Any, place: str) -> None:
    """Take out what stands at a place of the graph; of arguments the flag with its value."""
    *above, last = place.split(".")
    for step in above:
        value = value[step]
    key, is_list, index = last.partition("[")
    if is_list:
        at = int(index.rstrip("]"))
        has_value = not [*value[key], "--"][at + 1].startswith("--")
        del value[key][at : at + 1 + has_value]
    else:
        value.pop(key)


def is_replaced(finding: Finding) -> bool:
    """A fix that takes the place of what is there: another key, or the flag once more."""
    return "in place of" in finding.fix or "remove" in finding.fix or ".args[" in finding.place


@pytest.mark.parametrize("case", [c for c in CASES if is_graph(c.bad)], ids=named)
def test_the_fix_that_is_pasted_mends_it(case: Case) -> None:
    findings = [f for f in check(case.bad, gpu=case.gpu) if f.rule == case.rule and f.yaml]
    if not findings:
        pytest.skip("the fix is words")
    pasted: Any = yaml.safe_load(case.bad)
    for finding in findings:
        if is_replaced(finding):
            without(pasted, finding.place)
        pasted = merged(pasted, yaml.safe_load(finding.yaml))
    left = [f for f in check(yaml.safe_dump(pasted), gpu=case.gpu) if f.rule in (case.rule, *READ)]
    assert not left, findings[0].yaml
