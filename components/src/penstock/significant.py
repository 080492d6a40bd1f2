"""Numbers for people: few digits, and never an exponent such as `1e+03`."""

from __future__ import annotations


def significant(value: float, digits: int = 3) -> str:
    """``value`` with so many significant digits; from 1,000 on whole, with a separator.

    >>> significant(0.01234), significant(1034.2), significant(12.0)
    ('0.0123', '1,030', '12')
    """
    text = f"{value:.{digits}g}"
    if "e-" in text:
        return f"{float(text):.12f}".rstrip("0")
    rounded = float(text)
    return f"{rounded:,.0f}" if "e" in text or abs(rounded) >= 1000 else text
