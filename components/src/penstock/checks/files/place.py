"""Where a finding is in its file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    # None if the value is in no file.
    line: int | None
    # Dotted path in the graph, or path in the manifest.
    path: str
    # The --set argument that gave the value.
    override: str | None = None
    column: int | None = None
    # What to call the place where the path is too long; empty: the path.
    subject: str = ""
