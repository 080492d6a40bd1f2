"""Read a mapping from YAML or JSON whose content is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value`` when it is a mapping, else an empty one; `check` reports wrong types."""
    return value if isinstance(value, Mapping) else {}
