"""Each rule reports its case and does not report the near miss."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.checks import rules
from penstock.checks.finding import Finding
from penstock.checks.merge import merged as with_one_cause
from penstock.checks.registry import RULES
from tests.checks import (
    cases_autoscaling,
    cases_corrections,
    cases_engine,
    cases_engine_kernels,
    cases_exclusions,
    cases_flag_limits,
    cases_kv_connectors,
    cases_memory,
    cases_parallelism,
    cases_routing,
    cases_versions_of_values,
)
from tests.checks.support import BASES, Case, check, fired, graph, loud, manifest

CASES: tuple[Case, ...] = (
    *cases_engine.CASES,
    *cases_flag_limits.CASES,
    *cases_autoscaling.CASES,
    *cases_parallelism.CASES,
    *cases_memory.CASES,
    *cases_routing.CASES,
    *cases_corrections.CASES,
    *cases_kv_connectors.CASES,
    *cases_engine_kernels.CASES,
    *cases_versions_of_values.CASES,
    *cases_exclusions.CASES,
)
# Reported while a file is read, before there is a deployment; tested in test_check.py.
READ = ("PS001", "PS002", "PS003")
OF_FILES = {"PS001", "PS005", "PS006"}


def is_graph(text: str) -> bool:
    return "apiVersion:" not in text and "\nmodel:" in f"\n{text}"


def by_rule(cases: Iterable[Case]) -> list[pytest.ParameterSet]:
    """One worker runs all tests of a rule, as `check` caches what it has checked."""
    group = pytest.mark.xdist_group
    return [pytest.param(case, id=case.rule, marks=group(case.rule)) for case in cases]


FIRST_CASES = {case.rule: case for case in reversed(CASES)}
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


def merged(value: Any, fix: Any) -> Any:
    """``value`` with the fix pasted in: mappings merge, null removes, flags are added, and an
    item with a name replaces the item of the same name."""
    if isinstance(value, dict) and isinstance(fix, dict) and fix:
        both = {**value, **{k: merged(value.get(k), v) for k, v in fix.items()}}
        return {key: item for key, item in both.items() if item is not None}
    if isinstance(value, list) and isinstance(fix, list) and str(fix[0]).startswith("--"):
        return value + fix
    if isinstance(value, list) and isinstance(fix, list) and is_named(value + fix):
        both = {item["name"]: item for item in value}
        return list({**both, **{i["name"]: merged(both.get(i["name"]), i) for i in fix}}.values())
    return fix


def is_named(items: list[Any]) -> bool:
    return all(isinstance(item, dict) and "name" in item for item in items)


def without(value: Any, place: str) -> None:
    """Remove the value at a place of the graph; in arguments, the flag with its value."""
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


def merged_findings(case: Case) -> tuple[Finding, ...]:
    """As `penstock check` prints them: one YAML for all components that have the cause."""
    return with_one_cause(check(case.bad, gpu=case.gpu))


def is_replaced(finding: Finding) -> bool:
    """A fix that replaces an existing setting: another key, or the same flag."""
    return finding.replaces is not None or ".args[" in finding.place


@pytest.mark.slow
@pytest.mark.parametrize("case", by_rule(c for c in CASES if is_graph(c.bad)))
def test_the_pasted_fix_removes_the_finding(case: Case) -> None:
    findings = [f for f in merged_findings(case) if f.rule == case.rule and f.yaml]
    if not findings:
        pytest.skip("the fix has no YAML to paste")
    pasted: Any = yaml.safe_load(case.bad)
    for finding in findings:
        if is_replaced(finding):
            for place in dict.fromkeys(place.place for place in finding.places):
                without(pasted, place)
        pasted = merged(pasted, yaml.safe_load(finding.yaml))
    left = [f for f in check(yaml.safe_dump(pasted), gpu=case.gpu) if f.rule in (case.rule, *READ)]
    assert not left, findings[0].yaml


def fixed(text: str, finding: Finding) -> str:
    """The manifest with each part of the fix pasted into the object that its first line names."""
    documents = list(yaml.safe_load_all(text))
    (dgd,) = [d for d in documents if d["kind"] == "DynamoGraphDeployment"]
    for part in finding.yaml.split("# in ")[1:]:
        where, _, written = part.partition("\n")
        fix = yaml.safe_load(written)
        kind, _, name = where.partition(" ")
        if where == "the deployment":
            paste(dgd, fix)
        elif kind == "component":
            paste(components(dgd)[name], fix)
        else:
            _, name, key = where.split("/")
            (config,) = [d for d in documents if d["metadata"]["name"] == name]
            inner = merged(yaml.safe_load(config["data"][key]), fix)
            config["data"][key] = yaml.safe_dump(inner)
    return yaml.safe_dump_all(documents)


def paste(value: dict[str, Any], fix: dict[str, Any]) -> None:
    changed = merged(value, fix)
    value.clear()
    value.update(changed)


def components(dgd: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = dgd["spec"]
    return spec.get("services") or {c["name"]: c for c in spec["components"]}


@pytest.mark.slow
@pytest.mark.parametrize("case", by_rule(c for c in CASES if "apiVersion:" in c.bad))
def test_the_fix_pasted_into_a_manifest_removes_the_finding(case: Case) -> None:
    findings = [f for f in merged_findings(case) if f.rule == case.rule and f.yaml]
    if not findings or any(f.replaces and ".args[" not in f.place for f in findings):
        pytest.skip("the fix has no YAML to paste")
    text = case.bad
    for finding in findings:
        text = fixed(text, finding)
    left = [f for f in check(text, gpu=case.gpu) if f.rule in (case.rule, "PS001", "PS004")]
    assert not left, findings[0].yaml
