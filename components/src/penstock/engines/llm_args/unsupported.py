"""What TensorRT-LLM rejects in its YAML: the result of `validate`.

The rules import it without the typed model of the file, which is needed for a TensorRT-LLM worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.engines.llm_args.history import Version

Path = tuple[str | int, ...]


class Kind(StrEnum):
    UNKNOWN = "unknown"
    VALUE = "value"
    REMOVED = "removed"


@dataclass(frozen=True, kw_only=True)
class UnsupportedSetting:
    """A key or value that TensorRT-LLM rejects."""

    path: Path
    kind: Kind
    message: str
    fix: str
    # The first Dynamo that rejects it, if known.
    dynamo: Version = (1, 0)
    # What to set, by dotted key, if that is certain.
    config: Mapping[str, Any] = field(default_factory=dict)
    # The key to remove, if `config` sets it under another name.
    replaces: str | None = None
    # Whether it may be a key or a value of another version, because it resembles no known one.
    is_of_others: bool = False
