"""Published acceptance of draft tokens."""

from __future__ import annotations

import itertools
import operator
from pathlib import Path

import pytest

from penstock.simulate.acceptance import (
    MOST_TOKENS,
    PUBLISHED,
    constant_rate,
    rates_of_lengths,
)

DOCS = Path(__file__).parents[2] / "docs" / "simulate.md"


def length_of(rates: tuple[float, ...]) -> float:
    """Mean number of tokens of a step."""
    return 1 + sum(itertools.accumulate(rates, operator.mul))


@pytest.mark.parametrize("name", PUBLISHED)
def test_rates_give_the_published_length(name: str) -> None:
    published = PUBLISHED[name]
    assert len(published.rates) == MOST_TOKENS
    for tokens, length in published.lengths.items():
        rates = published.rates[:tokens] + published.rates[-1:] * (tokens - MOST_TOKENS)
        assert length_of(rates) == pytest.approx(length, abs=0.01)


@pytest.mark.parametrize("length", [1.0, 1.8, 3.0, 4.0])
def test_a_constant_rate_gives_the_length(length: float) -> None:
    rate = constant_rate(length, 3)
    assert length_of((rate,) * 3) == pytest.approx(length, abs=0.01)


def test_each_length_gives_the_rate_of_its_last_draft_token() -> None:
    # 80 % of the first draft tokens are accepted, and half of the second ones after them.
    assert rates_of_lengths([1.8, 2.2]) == (0.8, 0.5)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_documentation_shows_rates_and_source(name: str) -> None:
    published = PUBLISHED[name]
    rows = [line for line in DOCS.read_text("utf-8").splitlines() if f"`{name}`" in line]
    (row,) = [line for line in rows if published.source in line]
    assert ", ".join(f"{rate:g}" for rate in published.rates[:3]) in row
    assert published.text in row
    assert f"{length_of(published.rates[:3]):.2f}" in row
