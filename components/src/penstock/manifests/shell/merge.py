"""Merges the scopes of branches of which either may run: values that differ become unknown."""

from __future__ import annotations

from penstock.manifests.shell.scope import Scope
from penstock.manifests.shell.text import Text, Value


def merge(scopes: list[Scope], why: str) -> Scope:
    """The scope of what follows; ``why`` names the condition, ``scopes`` is not empty."""
    merged = scopes[0].copy()
    for other in scopes[1:]:
        _merge_values(merged, other, why)
        _merge_files(merged, other, why)
        merged.exported |= other.exported
        merged.functions = other.functions | merged.functions
        if merged.cwd != other.cwd:
            merged.cwd = Text.unknown("$PWD", f"$PWD: {why}")
        for note in other.notes:
            merged.note(note)
        merged.is_conditional |= other.is_conditional
    return merged


def _merge_values(merged: Scope, other: Scope, why: str) -> None:
    for name in sorted(merged.values.keys() | other.values.keys()):
        ours, theirs = merged.values.get(name), other.values.get(name)
        if ours != theirs:
            merged.values[name] = _either(name, ours, theirs, why)
            merged.unset.discard(name)
    for name, reason in other.unknown.items():
        merged.unknown.setdefault(name, reason)


def _either(name: str, ours: Value | None, theirs: Value | None, why: str) -> Value:
    """The common beginning of both values, followed by `${name}` for the rest."""
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        shared = _shared(ours, theirs)
        spelling = f"${{{name}[@]}}"
        return (*shared, Text.unknown(spelling, f"{spelling}: {why}"))
    spelling = f"${{{name}}}"
    open_end = Text.unknown(spelling, f"{spelling}: {why}")
    if isinstance(ours, Text) and isinstance(theirs, Text):
        shorter, longer = sorted((ours, theirs), key=lambda text: len(str(text)))
        if shorter.pieces and str(longer).startswith(str(shorter)) and shorter.is_known:
            # `OPTS="$OPTS --x"`: the rest is a separate word.
            gap = Text.known(" ") if str(longer)[len(str(shorter)) :][:1].isspace() else Text()
            return shorter + gap + open_end
    return open_end


def _shared(ours: tuple[Text, ...], theirs: tuple[Text, ...]) -> tuple[Text, ...]:
    size = 0
    while size < min(len(ours), len(theirs)) and ours[size] == theirs[size]:
        size += 1
    return ours[:size]


def _merge_files(merged: Scope, other: Scope, why: str) -> None:
    for path in sorted(merged.files.keys() | other.files.keys()):
        if merged.files.get(path) != other.files.get(path):
            merged.files.pop(path, None)
            merged.lost[path] = why
    merged.lost.update(other.lost)
