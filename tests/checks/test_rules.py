"""Each rule fires on its case and stays silent on the near miss."""

from __future__ import annotations

import pytest

from penstock.checks.rules import RULES
from tests.checks import cases_cluster, cases_engine, cases_pools
from tests.checks.support import BASES, Case, fired, graph, loud, manifest

CASES: tuple[Case, ...] = (*cases_engine.CASES, *cases_pools.CASES, *cases_cluster.CASES)
# Reported while a file is read, before there is a deployment: test_check.py has them.
OF_FILES = {"PS001", "PS005", "PS006"}


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
