"""What each version of Dynamo accepts, from tables that its own parsers made, and the differences.

The tables have the flags of frontend, mocker and workers, and the variables that the chart writes.
The engines' own flags are in them only for vLLM as far as Dynamo's parser adds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.engines.flags import SPLIT, load
from penstock.graph.versions import VERSIONS, minor, numbers, order, wheel_of

TABLE = "dynamo_versions.json"
What = Literal["removed", "renamed", "added", "changed", "deprecated"]
COMPARED = ("default", "choices")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One flag that a version removed, renamed, added, changed or will remove."""

    module: str
    flag: str
    what: What
    detail: str = ""
    replacement: str = ""
    also: str = ""
    """A second flag, which is needed as well as the replacement."""
    spellings: tuple[str, ...] = ()
    variable: str | None = None

    @property
    def text(self) -> str:
        """The flag, what is known about the change, and the replacement."""
        both = f" and {self.also}" if self.also else ""
        fix = f"; use {self.replacement}{both}" if self.replacement else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.flag}{detail}{fix}"


def facts(version: str) -> Mapping[str, Any]:
    """The table of one version, or of the one whose facts are used instead."""
    known: Mapping[str, Any] = load(TABLE)["versions"][wheel_of(version)]
    return known


def compare(old: str, new: str) -> tuple[Difference, ...]:
    """Every flag of Dynamo's parsers that differs between two versions, and those of ``new`` that
    are marked for removal."""
    before, after = facts(old)["modules"], facts(new)["modules"]
    new = wheel_of(new)  # only a wheel shows which flags a version still accepts
    return tuple(
        difference
        for module in sorted(set(before) | set(after))
        for difference in _compare(module, before.get(module, {}), after.get(module, {}), new)
    )


def differences(old: str, new: str) -> dict[str, list[str]]:
    """As `compare`, as text by kind and with the modules of equal flags together."""
    modules: dict[tuple[str, str], list[str]] = {}
    for difference in compare(old, new):
        names = modules.setdefault((difference.what, difference.text), [])
        names.append(difference.module.removeprefix("dynamo."))
    grouped: dict[str, list[str]] = {}
    for (what, text), names in modules.items():
        grouped.setdefault(what, []).append(f"{text} ({', '.join(names)})")
    return grouped


def knows(version: str, module: str, spelling: str) -> bool:
    """Whether the parser of a module accepts this spelling of a flag."""
    flags = facts(version)["modules"].get(module, {})
    return any(spelling in entry["spellings"] for entry in flags.values())


def releases_with_choices(module: str, spelling: str) -> dict[str, tuple[str, ...]]:
    """The choices of a flag in each known release that restricts it, such as 1.5; oldest first."""
    return {
        minor(version): tuple(entry["choices"])
        for version in VERSIONS
        for entry in facts(version)["modules"].get(module, {}).values()
        if spelling in entry["spellings"] and entry.get("choices")
    }


def first_with(module: str, spelling: str) -> str | None:
    """The oldest known version that accepts the flag; None if none does."""
    return next((v for v in sorted(VERSIONS, key=order) if knows(v, module, spelling)), None)


def _compare(
    module: str, before: Mapping[str, Any], after: Mapping[str, Any], new: str
) -> Iterator[Difference]:
    spellings = _by_spelling(before), _by_spelling(after)
    for flag, entry in before.items():
        kept = [s for s in entry["spellings"] if s in spellings[1]]
        gone = [s for s in entry["spellings"] if s not in spellings[1]]
        common = {"module": module, "variable": entry.get("variable")}
        if not kept:
            yield Difference(
                flag=flag,
                what="removed",
                spellings=tuple(gone),
                replacement=entry.get("replacement", ""),
                **common,
            )
            continue
        current = spellings[1][kept[0]]
        for spelling in gone:
            replacement = _same_polarity(spelling, [flag, *kept] if flag in kept else kept)
            also = SPLIT.get(spelling, "")
            yield Difference(
                flag=spelling,
                what="renamed" if replacement and flag in gone else "removed",
                spellings=(spelling,),
                replacement=replacement,
                also=also if also in spellings[1] else "",
                **common,
            )
        if detail := _changes(entry, current):
            yield Difference(
                flag=flag, what="changed", detail=detail, spellings=tuple(kept), **common
            )
    for flag, entry in after.items():
        common = {"module": module, "variable": entry.get("variable")}
        if not any(s in spellings[0] for s in entry["spellings"]):
            yield Difference(flag=flag, what="added", spellings=tuple(entry["spellings"]), **common)
        if "remove_in" in entry:
            when = entry["remove_in"]
            due = numbers(f"{when}.0") <= numbers(new)
            detail = f"announced for {when}" + (f", still accepted by {new}" if due else "")
            yield Difference(
                flag=flag,
                what="deprecated",
                detail=detail,
                replacement=entry["replacement"],
                spellings=tuple(entry["spellings"]),
                **common,
            )


def _same_polarity(spelling: str, kept: Sequence[str]) -> str:
    """The first spelling that sets the flag to the same value: --no-X is not --X."""
    is_negative = spelling.startswith("--no-")
    return next((s for s in kept if s.startswith("--no-") == is_negative), "")


def _by_spelling(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {s: entry for entry in flags.values() for s in entry["spellings"]}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What changed about a flag that both versions have."""
    changes = [
        f"{key} {_value_text(before.get(key))} is now {_value_text(after.get(key))}"
        for key in COMPARED
        if before.get(key) != after.get(key)
    ]
    return ", ".join([*changes, *_variable_changes(before.get("variable"), after)])


def _variable_changes(old: str | None, after: Mapping[str, Any]) -> Iterator[str]:
    """What changed about the environment variable that gives the flag's default."""
    new = after.get("variable")
    if new == old:
        return
    if old and after.get("legacy_variable") == old:
        yield f"the variable {old} is renamed to {new}; the old name is still read"
    elif old and not new:
        yield (
            f"the parser no longer names the variable {old}; it was not derived whether Dynamo "
            "still reads it"
        )
    elif old:
        yield f"the variable {old} is now {new}; it was not derived whether the old name is read"
    else:
        yield f"the variable {new} gives its default"


def _value_text(value: str | Sequence[str] | None) -> str:
    if value is None:
        return "unset"
    return value if isinstance(value, str) else "|".join(value)
