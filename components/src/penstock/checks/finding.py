"""The results of rules: what is wrong, where, why it matters and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from penstock.checks.version_range import Versions
from penstock.engines.settings import Location


class Level(StrEnum):
    # It cannot start, or responses are wrong or lost, in the version that the image states.
    ERROR = "error"
    # It works, but badly: slower than it could be, or it breaks under load or in an update.
    WARNING = "warning"
    # Worth knowing: a default that many keep, or a fact that was verified for other versions.
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Fix:
    """How to solve the problem: an instruction, and what to write for `CheckedFile.paste`.

    None as a value means: remove the key or variable.
    """

    # One or more imperative sentences.
    text: str
    # Keys of the engine's file, dotted.
    config: Mapping[str, Any] = field(default_factory=dict)
    # Variables of the component.
    env: Mapping[str, str | None] = field(default_factory=dict)
    # Flags of the component's process, with their values.
    args: tuple[str, ...] = ()
    # Keys of the component as the manifest has it: `main/image`, a slash in a key written as `~1`.
    fields: Mapping[str, Any] = field(default_factory=dict)
    # Keys of the DGD, written like `fields`.
    deployment: Mapping[str, Any] = field(default_factory=dict)
    # Dotted paths of the graph. For a graph they are used instead of everything above.
    graph: Mapping[str, Any] = field(default_factory=dict)
    # The flag, key or variable to remove, because this fix replaces it under another name or place.
    replaces: str | None = None

    def and_also(self, *sentences: str) -> Fix:
        """The same fix with further instructions. One that says an earlier one more precisely
        takes its place."""
        text = self.text
        for sentence in sentences:
            earlier = next((s for s in _sentences(text) if _is_part(s, sentence)), None)
            if earlier is not None:
                text = text.replace(earlier, sentence)
                continue
            end = "" if text.endswith((".", "?")) else "."
            text = f"{text}{end} {sentence}"
        return replace(self, text=text)


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def _is_part(sentence: str, other: str) -> bool:
    """Whether ``other`` begins with what ``sentence`` asks for, in another notation: `Set x to 1.`
    and `Set `--x 1` in the launch script.`"""
    words, other_words = _gist(sentence), _gist(other)
    return bool(words) and other_words[: len(words)] == words


def _gist(sentence: str) -> list[str]:
    """What an instruction is about: its words without the verb and the notation of flags."""
    _, _, rest = sentence.replace("`", "").rstrip(".").partition(" ")
    return [word.removeprefix("--") for word in rest.split() if word not in ("the", "to")]


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """One problem that a rule reports."""

    location: Location
    message: str
    fix: Fix
    # The consequence, if it differs from the rule's `effect`.
    why: str = ""
    # The level, if it differs from the rule's.
    level: Level | None = None
    # The versions in which it is true, if they differ from the rule's.
    versions: Versions | None = None


@dataclass(frozen=True, kw_only=True)
class FindingPlace:
    """A place of a finding in its file."""

    # Empty outside of the components.
    component: str
    # None if the value is in no file. The column is that of the key, or of the item of a list.
    line: int | None
    column: int | None
    # Dotted path in the graph, or path in the manifest.
    place: str
    # The --set argument that gave the value.
    override: str | None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A rule's result at its place in a file, or at several places that have the same cause."""

    # Rule id.
    rule: str
    level: Level
    file: str
    # Those of the first place; see `FindingPlace`.
    line: int | None
    column: int | None
    place: str
    message: str
    why: str
    fix: str
    # YAML to paste; empty if the fix is not a single change.
    yaml: str = ""
    # The flag, key or variable to remove when `yaml` is pasted.
    replaces: str | None = None
    override: str | None = None
    component: str = ""
    # What to call the place in one line; empty: `place`.
    subject: str = ""
    # The reason given in `checks.suppress` or in a comment; empty if the finding counts.
    suppressed: str = ""
    # Further places of the same cause, in other components.
    also: tuple[FindingPlace, ...] = ()

    @property
    def places(self) -> tuple[FindingPlace, ...]:
        first = FindingPlace(
            component=self.component,
            line=self.line,
            column=self.column,
            place=self.place,
            override=self.override,
        )
        return (first, *self.also)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Number of findings at each level, without the suppressed ones."""

    errors: int
    warnings: int
    notes: int
    suppressed: int


def tally(findings: Sequence[Finding]) -> Tally:
    levels = [finding.level for finding in findings if not finding.suppressed]
    return Tally(
        errors=levels.count(Level.ERROR),
        warnings=levels.count(Level.WARNING),
        notes=levels.count(Level.NOTE),
        suppressed=len(findings) - len(levels),
    )


def steps_of(key: str) -> tuple[str, ...]:
    """The steps of a key of `Fix.fields` or `Fix.deployment`; `~1` is a slash inside a step."""
    return tuple(step.replace("~1", "/") for step in key.split("/"))
