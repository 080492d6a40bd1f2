"""Numbers for people: significant digits, and no exponents anywhere in the output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.significant import significant

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
