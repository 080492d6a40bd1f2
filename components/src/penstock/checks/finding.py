"""What a check found: where, what, why it matters, and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.engines.settings import Location


class Level(StrEnum):
    """``ERROR``: it does not work. ``WARNING``: it works badly, or breaks under load or change.
    ``NOTE``: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Fix:
    """How to mend it. ``words`` is a sentence; the rest is what to write, for `checks.fix`:
    ``config`` keys of the engine's file (dotted), ``env`` variables, ``args`` flags, ``fields``
    keys of the component as the manifest has it, ``deployment`` keys of the whole DGD, ``graph``
    paths of the graph YAML, which win over what the others would mean there. None as a value:
    remove it."""

    text: str
    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    deployment: Mapping[str, Any] = field(default_factory=dict)
    graph: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """What a rule reports; ``level`` where it differs from the rule's own."""

    location: Location
    message: str
    fix: Fix
    why: str = ""
    level: Level | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A rule's report at its place in a file, or of a --set: ``override`` then. ``yaml`` is what to
    paste; ``silenced`` the reason that the graph gives for living with it."""

    rule: str
    level: Level
    file: str
    line: int | None
    place: str
    message: str
    why: str
    fix: str
    yaml: str = ""
    override: str | None = None
    silenced: str = ""
