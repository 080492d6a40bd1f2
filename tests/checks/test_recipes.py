"""Every published recipe is checked; tests/corpus/recipes.md lists the findings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.checks.finding import Finding, Level
from penstock.checks.merge import merged
from penstock.checks.run import check_file
from penstock.serving.understand import Hints
from tests.support.outside_files import recipes

ROOT = Path(__file__).parents[2]
RECIPES = recipes()
FILES = sorted(path.name for path in RECIPES.glob("*.yaml"))
SUMMARY = ROOT / "tests" / "corpus" / "recipes.md"

pytestmark = pytest.mark.needs("recipes")


def findings(name: str) -> tuple[Finding, ...]:
    return check_file(RECIPES / name, Hints())


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_is_checked(name: str) -> None:
    """Every finding has a rule, a reason and a fix."""
    for finding in findings(name):
        assert finding.why
        assert finding.fix or finding.rule == "PS004"
        assert finding.rule != "PS006"


@pytest.mark.parametrize("name", FILES)
def test_the_summary_lists_the_findings(name: str) -> None:
    row = re.search(
        rf"^\| {re.escape(name)} \| (.*) \| (.*) \| (.*) \|$", SUMMARY.read_text(), re.MULTILINE
    )
    assert row is not None
    listed = findings(name)
    for cell, level in zip(row.groups(), (Level.ERROR, Level.WARNING, Level.NOTE), strict=True):
        assert cell.split() == rules_of(listed, level)


def rules_of(findings: tuple[Finding, ...], level: Level) -> list[str]:
    """`PS404 PS408×2`"""
    rules = [f.rule for f in findings if f.level is level]
    return [f"{r}×{n}" if (n := rules.count(r)) > 1 else r for r in sorted(set(rules))]


@pytest.mark.parametrize("name", [name for name in FILES if "gpt-oss" in name])
def test_every_finding_in_the_gpt_oss_recipes_is_explained(name: str) -> None:
    recipe = name.removeprefix("recipes_gpt-oss-120b_").removesuffix("_deploy.yaml")
    rows = re.findall(
        rf"^\| {re.escape(recipe)} \| (\d+) \| (PS\d+) (\w+) \| .+ \|$",
        (SUMMARY.parent / "gpt-oss-recipes.md").read_text(),
        re.MULTILINE,
    )
    # PS911 is about the file, and lists rules.
    found = [(str(f.line), f.rule, str(f.level)) for f in merged(findings(name)) if f.line]
    assert sorted(rows) == sorted(found)
    assert "error" not in {level for _, _, level in rows}
