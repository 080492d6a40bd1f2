"""The fixes of findings that appear together do not contradict each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.checks.finding import Finding, Level
from penstock.checks.merge import merged
from penstock.checks.registry import RULES
from penstock.checks.rule import Rule
from tests.checks.all_cases import cases
from tests.checks.paste import is_pasteable, pasted_graph, pasted_manifest
from tests.checks.support import Case, by_rule, check, is_graph

# Rules with examples → the rules whose fixes leave or cause each other's findings there. PS205 asks
# for GPUs or a parallelism that another rule changes as well; the user chooses.
UNDECIDED = {
    "PS233": {"PS217"},
    "PS301": {"PS211"},
    "PS407": {"PS407"},
    "PS458": {"PS205"},
    "PS470": {"PS219"},
    "PS731": {"PS703"},
    "PS786": {"PS766"},
}


def problems(text: str, case: Case) -> list[Finding]:
    findings = merged(check(text, gpu=case.gpu))
    return [finding for finding in findings if finding.level is not Level.NOTE]


def left_after_all_fixes(case: Case, findings: Sequence[Finding]) -> set[str]:
    """The errors, and the warnings of the pasted rules, that remain in the file or are new."""
    of_graph = is_graph(case.bad)
    pasted = [f for f in findings if is_pasteable((f,), is_graph=of_graph)]
    if len({f.rule for f in pasted}) < 2:
        return set()
    text = (pasted_graph if of_graph else pasted_manifest)(case.bad, pasted)
    by_hand = {f.rule for f in findings} - {f.rule for f in pasted}
    left = [f for f in problems(text, case) if f.rule not in by_hand]
    rules = {f.rule for f in pasted}
    return {f.rule for f in left if f.level is Level.ERROR or f.rule in rules}


@pytest.mark.nightly
@pytest.mark.parametrize("rule", by_rule(RULES))
def test_all_fixes_of_a_file_can_be_pasted_at_once(rule: Rule) -> None:
    left: set[str] = set()
    for case in cases().get(rule.id, ()):
        found = problems(case.bad, case)
        # A flag that a fix removes by hand is not at the place of a second finding any more.
        places = [f.place for f in found if f.yaml and ".args[" in f.place]
        if len(set(places)) == len(places):
            left |= left_after_all_fixes(case, found)
    assert left == UNDECIDED.get(rule.id, set())
