"""Numbers for people: few digits, and never an exponent such as `1e+03`."""

from __future__ import annotations

from decimal import Decimal


def plain_number(value: float, digits: int = 15) -> str:
    """A number to write into a file or a command: without an exponent or a separator.

    >>> plain_number(1_200_000.0), plain_number(0.00001)
    ('1200000', '0.00001')
    """
    text = f"{value:.{digits}g}"
    return f"{Decimal(text):f}" if "e" in text else text


def limit_text(value: float) -> str:
    """A number that a user wrote, such as a limit: all its digits up to six, and never an exponent.

    >>> limit_text(500.0), limit_text(0.5), limit_text(2_500_000.0)
    ('500', '0.5', '2,500,000')
    """
    text = f"{value:g}"
    return significant(value, 6) if "e" in text else text


def significant(value: float, digits: int = 3) -> str:
    """``value`` with so many significant digits; from 1,000 on whole, with a separator.

    >>> significant(0.01234), significant(1034.2), significant(12.0)
    ('0.0123', '1,030', '12')
    """
    text = f"{value:.{digits}g}"
    if "e-" in text:
        return f"{float(text):.12f}".rstrip("0").rstrip(".")
    rounded = float(text)
    return f"{rounded:,.0f}" if "e" in text or abs(rounded) >= 1000 else text


def counted(count: int, noun: str) -> str:
    """``count`` with a noun that takes an s.

    >>> counted(1, "GPU"), counted(0, "GPU")
    ('1 GPU', '0 GPUs')
    """
    return f"{count} {noun}{'s' * (count != 1)}"
