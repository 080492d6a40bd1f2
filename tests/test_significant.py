"""Numbers for people: significant digits, and no exponents anywhere in the output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.graph.slo import Slo
from penstock.significant import limit_text, significant

PACKAGE = Path(__file__).parents[1] / "components" / "src" / "penstock"
# Shares of at most 100 %, and the values of a chart's data.
OF_SMALL_VALUES = re.compile(r"attain \* 100|self\.most \* 100|float\(f")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1034.2, 3, "1,030"),
        (1_036_000.0, 3, "1,040,000"),
        (999.6, 3, "1,000"),
        (123.4, 3, "123"),
        (0.01234, 3, "0.0123"),
        (0.00001234, 3, "0.0000123"),
        (-2500.0, 2, "-2,500"),
        (123.4, 2, "120"),
        (0.0, 3, "0"),
        (12.0, 3, "12"),
        (float("inf"), 3, "inf"),
    ],
)
def test_significant_digits_without_an_exponent(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


def test_no_other_code_formats_with_exponents() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r":[+,]?\.\dg\}", line) and not OF_SMALL_VALUES.search(line)
    ]
    assert found == [], "use penstock.significant"


@pytest.mark.parametrize(
    ("value", "text"),
    [(500.0, "500"), (0.5, "0.5"), (16.95, "16.95"), (999_999.0, "999999"),
     (1_000_000.0, "1,000,000"), (2_500_000.0, "2,500,000"), (0.00001, "0.00001")],
)  # fmt: skip
def test_a_limit_has_the_digits_that_were_written_and_no_exponent(value: float, text: str) -> None:
    assert limit_text(value) == text


def test_an_slo_of_20_minutes_has_no_exponent() -> None:
    assert str(Slo(e2e_ms=1_200_000)) == "end to end ≤ 1,200,000 ms"
