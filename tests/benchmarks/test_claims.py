"""The published claims: the rule of the verdicts, and the page with the figures of the results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import claims
from published.catalog import CLAIMS
from published.model import Case, Claim, Rule
from published.page import cases_of, number, with_claims
from published.verdict import MANY, Verdict, of_case, of_claim

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "claims.md").read_text()
RESULT = json.loads((ROOT / "benchmarks" / "results" / "claims.json").read_text())["claims"]
SPEED = replace(CLAIMS[0], figure=500, rule=Rule.EQUAL)
MEMORY = replace(CLAIMS[0], figure=0.5, rule=Rule.FITS)
ROWS = {row.split(" | ")[0]: row for row in PAGE.splitlines() if row.startswith("| ")}


def case(low: float | None, high: float | None, reason: str = "") -> Case:
    return Case(assumption="", predicted=1.0, low=low, high=high, no_interval=reason)


NOTHING = case(None, None, "no measured point")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (400, 600, Verdict.SUPPORTED),
        (500, 600, Verdict.SUPPORTED),
        (300, 499, Verdict.ABOVE),
        (501, 600, Verdict.BELOW),
    ],
)
def test_a_speed_is_supported_inside_its_interval(low: float, high: float, verdict: str) -> None:
    assert of_case(SPEED, case(low, high)) == (verdict, "")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.5, 2, Verdict.SUPPORTED), (-1, 0.4, Verdict.DOES_NOT_FIT), (0.4, 0.6, Verdict.UNKNOWN)],
)
def test_a_model_fits_if_it_fits_at_the_lower_end(low: float, high: float, verdict: str) -> None:
    found, reason = of_case(MEMORY, case(low, high))
    assert found == verdict
    assert bool(reason) == (verdict == Verdict.UNKNOWN)


def test_without_an_interval_there_is_no_verdict_but_a_reason() -> None:
    for claim in (SPEED, MEMORY):
        assert of_case(claim, NOTHING) == (Verdict.UNKNOWN, "no measured point")
        assert of_claim(claim, [NOTHING, NOTHING]) == (Verdict.UNKNOWN, "no measured point")


def test_all_cases_of_a_speed_must_agree() -> None:
    inside, above = case(400, 600), case(300, 400)
    assert of_claim(SPEED, [inside, inside]) == (Verdict.SUPPORTED, "")
    assert of_claim(SPEED, [above, above]) == (Verdict.ABOVE, "")
    assert of_claim(SPEED, [inside, above]) == (Verdict.UNKNOWN, MANY)
    assert of_claim(SPEED, [inside, NOTHING]) == (Verdict.UNKNOWN, "no measured point")


def test_one_engine_is_enough_to_fit() -> None:
    fits, too_large = case(1, 2), case(-2, -1)
    assert of_claim(MEMORY, [too_large, fits]) == (Verdict.SUPPORTED, "")
    assert of_claim(MEMORY, [too_large, too_large]) == (Verdict.DOES_NOT_FIT, "")
    assert of_claim(MEMORY, [NOTHING, too_large]) == (Verdict.UNKNOWN, "no measured point")


def test_the_page_is_that_of_the_result_file() -> None:
    assert claims.report(check=True) == 0


def test_another_prediction_changes_the_page() -> None:
    changed = json.loads(json.dumps(RESULT))
    changed["single-user"]["cases"]["single-user"][0] |= {"predicted": 1, "low": 1, "high": 2}
    text = with_claims(PAGE, changed)
    assert text != PAGE
    assert "| 1 tokens/s | 1 to 2 |" in text
    assert with_claims(text, RESULT) == PAGE


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_row_states_figure_source_date_prediction_and_verdict(claim: Claim) -> None:
    cases = cases_of(claim, RESULT)
    verdict, reason = of_claim(claim, cases)
    row = ROWS[f"| {claim.title}"]
    for text in (claim.published, claim.url, claim.date, number(cases[0].predicted), reason):
        assert text in row
    assert f"**{verdict}**" in row
    assert PAGE.count(f"\n## {claim.title}\n") == 1


def test_the_parts_predict_all_claims() -> None:
    assert {claim.part for claim in CLAIMS} == set(claims.PARTS) == set(RESULT)
    predicted = {name for part in RESULT.values() for name in part["cases"]}
    assert predicted == {claim.name for claim in CLAIMS}


def test_numbers_have_three_significant_digits() -> None:
    assert [number(v) for v in (0.1546, 1.8014, 481.5, 1108, -2.251)] == [
        *("0.155", "1.8", "482", "1,110", "−2.25")
    ]
