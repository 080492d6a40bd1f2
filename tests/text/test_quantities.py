"""Quantities of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.text.quantities import quantity_of


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), (2, 2.0), ("1.5", 1.5), ("8Gi", 2.0**33), ("2k", 2000), ("1e3", 1000)],
)
def test_a_quantity_is_in_cores_or_bytes(text: Any, number: float) -> None:
    assert quantity_of(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["64GB", "", "m", "two", None])
def test_what_the_api_server_does_not_read_is_none(text: Any) -> None:
    assert quantity_of(text) is None
