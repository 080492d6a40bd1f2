"""The state of a shell: variables, files, directory; copied for subshells and branches.

A statement ends with an `Outcome`, or leaves a loop, a function or the script.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.manifests.shell.text import Text, UnknownError, Value, certain, first

# The image, the kubelet or the operator may set these, so they may be set although the manifest
# does not set them. For any other name, `${NAME:-default}` is its default.
_SET_ELSEWHERE_NAMES = """
PATH HOME USER LOGNAME HOSTNAME PWD OLDPWD SHELL TERM LANG LC_ALL TMPDIR LD_LIBRARY_PATH
LD_PRELOAD LIBRARY_PATH CPATH PYTHONPATH VIRTUAL_ENV PPID UID EUID RANDOM SECONDS LINENO BASHPID
BASH_VERSION SHLVL DYNAMO_PORT DYNAMO_HOME WORKSPACE MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
LOCAL_RANK
"""
_SET_ELSEWHERE = frozenset(_SET_ELSEWHERE_NAMES.split())
_PREFIXES = ("DYN_", "POD_", "LWS_", "GROVE_", "KUBERNETES_", "CUDA_", "NVIDIA_", "NCCL_", "OMPI_")
LONGEST = 131_072  # characters: the longest argument or variable that Linux passes to a program


@dataclass(frozen=True)
class Outcome:
    """What a statement leaves behind."""

    # None if only the cluster knows it. Commands other than conditions (`[ … ]`, grep) are assumed
    # to succeed.
    status: bool | None
    # The condition of which the status is unknown.
    question: str = ""
    # Known for echo, printf and cat.
    output: Text | None = None


class Leave(Exception):  # noqa: N818  control flow, not an error
    """Leaves a loop or a function."""


class Break(Leave):
    pass


class Continue(Leave):
    pass


class Return(Leave):
    pass


class Exit(Exception):  # noqa: N818
    """Leaves the script."""

    def __init__(self, status: bool | None) -> None:
        self.status = status


class Replaced(Exit):
    """`exec`: another program replaces the script."""

    def __init__(self) -> None:
        super().__init__(None)


@dataclass(kw_only=True)
class Scope:
    """The state of one shell."""

    values: dict[str, Value] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    # Variable → why only the cluster knows its value.
    unknown: dict[str, str] = field(default_factory=dict)
    unset: set[str] = field(default_factory=set)
    positional: tuple[Text, ...] = ()
    program: Text = field(default_factory=lambda: Text.known("bash"))
    files: dict[str, Text] = field(default_factory=dict)
    # Absolute path → why only the cluster knows the file's content.
    lost: dict[str, str] = field(default_factory=dict)
    cwd: Text | None = None
    functions: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    # Whether what follows runs only in one branch of several.
    is_conditional: bool = False
    is_bash: bool = True
    exports_all: bool = False
    # For each function call, the values that `local` replaced.
    frames: list[dict[str, tuple[Value | None, bool]]] = field(default_factory=list)

    def copy(self, *, shares_files: bool = False) -> Scope:
        """A copy: a subshell has its own variables, a branch its own variables and files."""
        copied = Scope(**vars(self))
        for name in ("values", "exported", "unknown", "unset", "functions"):
            setattr(copied, name, getattr(self, name).copy())
        copied.frames = [frame.copy() for frame in self.frames]
        if not shares_files:
            copied.files, copied.lost = self.files.copy(), self.lost.copy()
        return copied

    def become(self, other: Scope) -> None:
        for name, attribute in vars(other).items():
            setattr(self, name, attribute)

    def note(self, text: str) -> None:
        """Add a note to every process that is started from here on."""
        if text not in self.notes:
            self.notes = (*self.notes, text)

    def find(self, name: str) -> Value | None:
        """The value; empty if the variable is known to be unset, None if nothing here sets it."""
        if name in self.values:
            return self.values[name]
        if name in self.unset:
            return Text()
        return None

    def is_set(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, spelling: str) -> Value:
        """The value, or ``spelling`` with the reason that only the cluster knows the value."""
        value = self.find(name)
        return Text.unknown(spelling, self.why(name, spelling)) if value is None else value

    def why(self, name: str, spelling: str) -> str:
        if name in self.unknown:
            return f"{spelling}: {self.unknown[name]}"
        return f"{spelling}: not set in the manifest, so the image or the operator decides"

    def may_be_set_elsewhere(self, name: str) -> bool:
        return name in self.unknown or name in _SET_ELSEWHERE or name.startswith(_PREFIXES)

    def assign(self, name: str, value: Value, *, append: bool = False) -> None:
        if append:
            value = _appended(self.get(name, f"${name}") if self.is_declared(name) else None, value)
        if len(str(Text.join(value)) if isinstance(value, tuple) else str(value)) > LONGEST:
            value = Text.unknown(f"${{{name}}}", f"${{{name}}}: longer than Linux allows")
        self.unset.discard(name)
        self.unknown.pop(name, None)
        self.values[name] = value
        if self.exports_all:
            self.exported.add(name)

    def is_declared(self, name: str) -> bool:
        return name in self.values or self.may_be_set_elsewhere(name)

    def assign_item(self, name: str, index: int, element: Text) -> None:
        current = self.values.get(name, ())
        items = [current] if isinstance(current, Text) else list(current)
        items += [Text()] * (index + 1 - len(items))
        items[index] = element
        self.assign(name, tuple(items))

    def forget(self, name: str, why: str) -> None:
        """Mark ``name`` as known only on the cluster from here on."""
        was_exported = name in self.exported
        self.values.pop(name, None)
        self.unset.discard(name)
        self.unknown[name] = why
        if was_exported:
            self.values[name] = Text.unknown(f"${{{name}}}", f"${{{name}}}: {why}")

    def remove(self, name: str) -> None:
        self.values.pop(name, None)
        self.unknown.pop(name, None)
        self.exported.discard(name)
        self.unset.add(name)

    def separators(self) -> str:
        """`IFS`: the characters that separate fields of an expansion. Raises UnknownError."""
        if not self.is_set("IFS"):
            return " \t\n"
        separators = certain(first(self.values["IFS"]))
        if separators.strip() and separators.strip() != separators:
            raise UnknownError("an IFS that mixes whitespace and other characters is not supported")
        return separators

    def make_local(self, name: str) -> None:
        if self.frames and name not in self.frames[-1]:
            self.frames[-1][name] = (self.values.get(name), name in self.exported)

    def restore_locals(self) -> None:
        for name, (previous, was_exported) in self.frames.pop().items():
            self.remove(name)
            if previous is not None:
                self.assign(name, previous)
            if was_exported:
                self.exported.add(name)

    def number(self, name: str) -> int:
        """A variable in arithmetic: 0 if unset; UnknownError if it is not a known number."""
        variable = self.find(name)
        if variable is None and not self.may_be_set_elsewhere(name):
            variable = Text()
        text = certain(first(variable if variable is not None else self.get(name, name))).strip()
        try:
            return int(text or "0")
        except ValueError:
            raise UnknownError(f"{name} is {text!r}, which is not a number") from None

    def environment(self) -> dict[str, Text]:
        """The exported variables; an array cannot be exported."""
        return {
            name: variable
            for name, variable in self.values.items()
            if name in self.exported and isinstance(variable, Text)
        }

    def path(self, text: str) -> str | None:
        """The absolute path of ``text``; None if the directory is unknown."""
        if text.startswith("/"):
            return posixpath.normpath(text)
        if self.cwd is None or not self.cwd.is_known:
            return None
        return posixpath.normpath(posixpath.join(str(self.cwd), text))

    def write(self, path: str, text: Text, *, append: bool) -> None:
        at = self.path(path)
        if at is None:
            return
        if append and at in self.files:
            text = self.files[at] + text
        elif append:
            self.lose(at, "the launch appends to a file of the image")
            return
        self.files[at] = text
        self.lost.pop(at, None)

    def lose(self, path: str, why: str) -> None:
        at = self.path(path)
        if at is not None:
            self.files.pop(at, None)
            self.lost[at] = why


def _appended(current: Value | None, addition: Value) -> Value:
    if isinstance(addition, tuple):
        items = () if current is None else ((current,) if isinstance(current, Text) else current)
        return (*items, *addition)
    if isinstance(current, tuple):
        return (first(current) + addition, *current[1:])
    return addition if current is None else current + addition


def start(env: Mapping[str, str], unknown: Mapping[str, str]) -> Scope:
    """The scope of a shell in a container's environment."""
    values: dict[str, Value] = {name: Text.known(text) for name, text in env.items()}
    return Scope(values=values, exported=set(env), unknown=dict(unknown))


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
