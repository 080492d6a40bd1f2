"""Quantities of Kubernetes, such as `500m` and `8Gi`."""

from __future__ import annotations

import re
from typing import Any

# What the API server accepts (resource.ParseQuantity); sizes in bytes or cores.
QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?"
)
SUFFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3}
SUFFIXES |= {unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)}
SUFFIXES |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}


def quantity_of(text: Any) -> float | None:
    """A quantity in bytes or cores; None if the API server does not read it.

    >>> quantity_of("500m"), quantity_of(2), quantity_of("8Gi"), quantity_of("64GB")
    (0.5, 2.0, 8589934592.0, None)
    """
    if (parts := QUANTITY.fullmatch(str(text))) is None:
        return None
    number, suffix = parts[1], parts[2] or ""
    return float(number) * SUFFIXES[suffix] if suffix in SUFFIXES else float(number + suffix)
