"""Two values as a list of differences, each with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.strict_yaml.places import looks_secret

HIDDEN = "(hidden)"


class _Absent:
    def __repr__(self) -> str:
        return "unset"


ABSENT = _Absent()


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """``before`` or ``after`` is ABSENT where there is no value."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        before, after = self.told
        return f"{self.path} {before} → {after}"

    @property
    def told(self) -> tuple[str, str]:
        """Both values as they may be printed: of a secret only whether there is one."""
        if _is_secret(self.path, self.before) or _is_secret(self.path, self.after):
            there = ["unset" if value is ABSENT else HIDDEN for value in (self.before, self.after)]
            return there[0], there[1]
        return shown(_masked(self.before)), shown(_masked(self.after))


# Names of variables and flags, and beginnings of values, that say what is in them: wider than
# `looks_secret`, since people name these as they like.
SECRET_NAME = re.compile(
    r"\b(env\.|args\.-).*(TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|-key)",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"^(hf_|sk-|ghp_|glpat-|xox|AKIA|eyJ)")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
URL_SECRET = re.compile(r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)")
SECRET_WORD = re.compile(r"\b(hf_|sk-|ghp_|glpat-|xox[a-z]-|AKIA|eyJ)[\w.=/+-]{8,}|(?<=Bearer )\S+")


def without_secrets(text: str) -> str:
    """Somebody else's words, such as a log's, without what looks like a credential, and without
    what a terminal would obey."""
    return URL_SECRET.sub(HIDDEN, SECRET_WORD.sub(HIDDEN, CONTROL.sub("", text)))


def _is_secret(path: str, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    named = looks_secret(path) or SECRET_NAME.search(path)
    return bool(named or SECRET_VALUE.search(value))


def _masked(value: Any) -> Any:
    """With (hidden) for what looks like a credential, at any depth."""
    if isinstance(value, Mapping):
        return {k: HIDDEN if _is_secret(str(k), v) else _masked(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    return without_secrets(value) if isinstance(value, str) else value


def differences(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Every leaf that differs; lists of named things are compared by name, others as a whole."""
    before, after = _named(before), _named(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(k for k in after if k not in before)]:
            inner = f"{path}.{key}" if path else str(key)
            yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), inner)
    elif _is_alike(before, after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif not _same(before, after):
        yield FieldChange(path=path, before=before, after=after)


def _is_alike(before: Any, after: Any) -> bool:
    """Two lists of as many mappings: compared one by one."""
    both = (before, after)
    return (
        all(isinstance(v, list) and all(isinstance(e, Mapping) for e in v) for v in both)
        and len(before) == len(after) > 0
    )


def overwritten(asked: Any, live: Any, path: str = "") -> Iterator[FieldChange]:
    """What was asked for and is something else now; what others added to it is not reported."""
    asked, live = _named(asked), _named(live)
    if isinstance(asked, Mapping):
        for key, value in asked.items():
            inner = f"{path}.{key}" if path else str(key)
            found = live.get(key, ABSENT) if isinstance(live, Mapping) else ABSENT
            yield from overwritten(value, found, inner)
    elif not _same(asked, live) and not (asked in ({}, [], None) and live is ABSENT):
        yield FieldChange(path=path, before=asked, after=live)


def _same(before: Any, after: Any) -> bool:
    """As text: to Python 1 is true, to an engine it is not."""
    if ABSENT in (before, after):
        return before is after
    return json.dumps(before, default=str) == json.dumps(after, default=str)


def _named(value: Any) -> Any:
    """A list of things with names as a mapping."""
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        names = [v.get("name") for v in value]
        if all(isinstance(n, str) for n in names) and len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return value


def shown(value: Any) -> str:
    """A value in a sentence."""
    if isinstance(value, str | _Absent):
        text = str(value) or '""'
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"
